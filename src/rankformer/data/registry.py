"""The datasets known by name, and where their files are looked for."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rankformer.errors import AbsentDataError, ConfigError

PAPER = (
    "Chen et al., Rankformer: A Graph Transformer for Recommendation based on Ranking Objective, WWW 2025; "
    "the authors state no licence for the files, so cite the paper and do not pass them on"
)
PAPER_HOMEPAGE = "https://github.com/StupidThree/Rankformer"
PAPER_FILES = "https://raw.githubusercontent.com/StupidThree/Rankformer/9f6fd1f1e141b3208c39f0308964f206f9f74b8e/data/"


class DataFile(NamedTuple):
    """One file of a dataset: its name, the SHA-1 git gives its bytes (None if unpublished), and its interactions."""

    name: str
    blob_sha1: str | None
    num_interactions: int

    def matches(self, path: Path) -> bool:
        """Return whether the bytes at `path` are the published ones; True when none are known."""
        return self.blob_sha1 is None or git_blob_sha1(path) == self.blob_sha1


def git_blob_sha1(path: Path) -> str:
    """Return the SHA-1 that git gives a file's bytes: of "blob <size>", a zero byte, and the bytes."""
    begun = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: begun).hexdigest()


class Dataset(NamedTuple):
    """A dataset that has a name."""

    name: str
    description: str
    num_users: int
    num_items: int
    files: tuple[DataFile, ...] = ()  # of train, valid and test; none for generated data
    url_base: str | None = None  # where the files are fetched from; None when they cannot be
    homepage: str = ""
    citation: str = ""

    @property
    def is_generated(self) -> bool:
        """Whether the data is made by the package and needs no files."""
        return not self.files

    @property
    def num_interactions(self) -> int | None:
        """Interactions over all files, or None for generated data."""
        return sum(file.num_interactions for file in self.files) if self.files else None


def _files(*parts: tuple[str | None, int]) -> tuple[DataFile, ...]:
    """Return the files of train, valid and test, given the SHA-1 and the interactions of each."""
    names = ("train.txt", "valid.txt", "test.txt")
    return tuple(DataFile(name, *part) for name, part in zip(names, parts, strict=True))


def _paper_set(folder: str, description: str, size: tuple[int, int], *parts: tuple[str, int]) -> Dataset:
    return Dataset(folder.lower(), description, *size, _files(*parts), PAPER_FILES + folder, PAPER_HOMEPAGE, PAPER)


_ALL = (
    Dataset(
        "demo",
        "Generated readers and books with planted tastes, so that the best possible score is known; needs no files.",
        900,
        400,
        citation="none needed: the data is invented",
    ),
    _paper_set(
        "Ali-Display",
        "Clicks on display advertisements, the paper's split; has duplicates, also between train and test.",
        (17_730, 10_036),
        ("3eeedc4c502b33faba54c510858def4bbd3e9a87", 121_178),
        ("56144b077c2bbd9aea044e9da83b5d3c2d6cca81", 17_311),
        ("821a406ca13ea1519f19357b3e3c4e8c18ee2de2", 34_622),
    ),
    _paper_set(
        "Epinions",
        "Consumer reviews, the paper's split; the vocabulary has ids without interactions.",
        (17_894, 17_660),
        ("c0a4f39e0434c04cd14b103ebe9dd5fe0e865650", 210_967),
        ("191876c30c1b164502410a2c0c1c89641cc6c3e7", 30_137),
        ("c63d0562c849650a94771cd6218876a817aba768", 60_274),
    ),
    _paper_set(
        "Amazon-CDs",
        "Reviews of CDs and vinyl, the paper's split; sizes as the paper prints them.",
        (51_266, 46_463),
        ("69772eecca62f420c69f2e5ed23193858b03a229", 512_216),
        ("386f49b000689a2b24b006843827b770d9e0f55c", 73_172),
        ("d644952b0b645df772067d427a5c36b0c107e604", 146_346),
    ),
    _paper_set(
        "Yelp2018",
        "Reviews of places, the paper's split, larger than LightGCN's; sizes as the paper prints them.",
        (167_037, 79_471),
        ("70ac3164c4ffb4b1a848121649f75f9744b83d97", 1_379_505),
        ("89ae68476923de4659b77ec74e03aed9050bead2", 197_072),
        ("e62f4b0fb6cd488e27491bdc3f606a2a68fcf834", 394_144),
    ),
    Dataset(
        "yelp2018-lightgcn",
        "LightGCN's Yelp2018 with a validation part taken from its train part; local files only.",
        31_668,
        38_048,
        _files((None, 1_093_508), (None, 143_751), (None, 324_147)),
        None,
        "https://github.com/gusye1234/LightGCN-PyTorch",
        "He et al., LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation, SIGIR 2020",
    ),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}


def dataset_named(name: str) -> Dataset:
    """Return the dataset of that name."""
    if name not in DATASETS:
        raise ConfigError(f"{name!r} is not a known dataset; expected one of {', '.join(DATASETS)}")
    return DATASETS[name]


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where downloads are kept: $RANKFORMER_CACHE, or `rankformer` under the user's cache folder."""
    shared = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(environ.get("RANKFORMER_CACHE") or Path(shared, "rankformer"))


def find_dataset(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that holds all files of a dataset, or say where it was looked for and how to get it."""
    dataset = dataset_named(name)
    folders = [cache_folder(environ) / name]
    if environ.get("RANKFORMER_DATA"):
        folders.insert(0, Path(environ["RANKFORMER_DATA"]) / name)
    for folder in folders:
        if all((folder / file.name).is_file() for file in dataset.files):
            return folder
    looked = " and ".join(str(folder) for folder in folders)
    raise AbsentDataError(
        f"dataset {name!r} was not found in {looked} (RANKFORMER_DATA names another folder); {remedy_for(name)}"
    )


def remedy_for(name: str) -> str:
    """Return how to get the files of a dataset that is not there."""
    if dataset_named(name).url_base:
        return f"run `rankformer data download {name}`"
    return "no published file has its valid part, so put train.txt, valid.txt and test.txt there yourself"
