"""`DataSource`: in words that fit a run's manifest, where the three parts come from and what was done to them."""

import difflib
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, field_validator

from rankformer.data.cleaning import k_core_rows
from rankformer.data.columns import encode_logs
from rankformer.data.demo import demo_parts
from rankformer.data.interactions import Interactions, Parts
from rankformer.data.readers import FORMAT_OF_EXTENSION, Format, extension_of, read_columns
from rankformer.data.registry import DATASETS, find_dataset
from rankformer.data.splits import DEFAULT_PARTS, SplitName, check_parts
from rankformer.errors import ConfigError, DataError
from rankformer.settings import Settings

PART_STEMS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}

Labels = NDArray[np.int8]


def _path_text(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else value


class DataSource(Settings):
    """How to get train, valid and test: everything needed to load them again, and nothing about this machine.

    Steps, in this order: read; merge repeats (within each part of split data); drop light pairs; k-core; split.
    """

    source: Annotated[str, BeforeValidator(_path_text)] = Field(min_length=1)
    """A registered name, a folder with train, valid and test files, or one file."""
    format: Format | None = None
    """Format of the files when their extension does not say."""
    user: str | None = None
    """Name of the user column."""
    item: str | None = None
    """Name of the item column."""
    time: str | None = None
    """Name of the time column; an empty name leaves it out."""
    weight: str | None = None
    """Name of the weight column; an empty name leaves it out."""
    title: str | None = None
    """Name of the item title column; an empty name leaves it out."""
    header: bool | None = None
    """Whether csv and tsv files start with column names; None looks for them."""
    duplicates: Literal["keep", "merge"] = "keep"
    """Whether repeated pairs stay or become one."""
    min_weight: float | None = None
    """Smallest weight that counts as an interaction."""
    k_core: int | None = Field(default=None, ge=1)
    """Distinct partners that each user and item must have."""
    split: SplitName = "random"
    """How one log becomes three parts."""
    parts: tuple[float, float, float] = DEFAULT_PARTS
    """Shares of train, valid and test."""
    split_seed: int = Field(default=0, ge=0)
    """Chooses the random splits."""

    @field_validator("parts")
    @classmethod
    def _parts_add_up(cls, parts: tuple[float, float, float]) -> tuple[float, float, float]:
        check_parts(parts)
        return parts

    @property
    def name(self) -> str:
        """What to call the data in reports: the registered name, or the file's or folder's own."""
        return self.source if self.source in DATASETS else Path(self.source).name.split(".")[0] or "data"

    def absolute(self) -> "DataSource":
        """Return the same source with a path that does not depend on the current folder."""
        if self.source in DATASETS:
            return self
        return self.model_copy(update={"source": str(Path(self.source).absolute())})

    def load(self) -> Parts:
        """Return train, valid and test over shared id maps."""
        whole, labels = self._load_labelled()
        if labels is None:
            return whole.split(by=self.split, parts=self.parts, seed=self.split_seed)
        return _parts_of(whole, labels)

    def load_log(self) -> Interactions:
        """Return all pairs in one log; of split data, train comes first and test last."""
        return self._load_labelled()[0]

    def _load_labelled(self) -> tuple[Interactions, Labels | None]:
        whole, labels = self._read()
        if labels is not None:
            self._refuse("already split", "split", "parts", "split_seed")
        if self.duplicates == "merge" and labels is None:
            whole = whole.merge_repeats()
        elif self.duplicates == "merge" and labels is not None:
            whole, labels = _join([part.merge_repeats() for part in _parts_of(whole, labels)], whole.name)
        if self.min_weight is not None:
            light = whole.weights < self.min_weight if whole.weights is not None else None
            whole = whole.min_weight(self.min_weight)
            labels = labels[~light] if labels is not None and light is not None else None
        if self.k_core is not None:
            stays = k_core_rows(whole.users, whole.items, self.k_core)
            whole = whole.k_core(self.k_core)
            labels = labels[stays] if labels is not None else None
        return whole, labels

    def _read(self) -> tuple[Interactions, Labels | None]:
        if self.source in DATASETS:
            return self._read_registered()
        path = Path(self.source).expanduser()
        if path.is_dir():
            return self._read_files(_part_files(path))
        if not path.exists():
            near = difflib.get_close_matches(self.source, DATASETS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"registered names are {', '.join(DATASETS)}"
            raise DataError(f"{self.source!r} is no dataset, folder or file; {hint}")
        return self._read_files([path])

    def _read_registered(self) -> tuple[Interactions, Labels | None]:
        self._refuse("registered and has fixed columns", "format", "user", "item", "time", "weight", "title", "header")
        dataset = DATASETS[self.source]
        if dataset.is_generated:
            return _join(demo_parts(), dataset.name)
        folder = find_dataset(dataset.name)
        files: list[Path | None] = [folder / file.name for file in dataset.files]
        whole, labels = self._read_files(files, format="pairs")
        # The published ids are row numbers, gaps included, and so are the sizes in the paper's code.
        users = np.asarray(whole.user_ids.ids)[whole.users]
        items = np.asarray(whole.item_ids.ids)[whole.items]
        if users.dtype.kind != "i" or items.dtype.kind != "i" or min(users.min(), items.min()) < 0:
            raise DataError(f"{folder}: expected whole numbers from 0 on every line; download {dataset.name} again")
        return Interactions.from_indices(users, items, name=dataset.name), labels

    def _read_files(
        self, files: Sequence[Path | None], format: str | None = None
    ) -> tuple[Interactions, Labels | None]:
        """Return one file without labels, or the files of train, valid and test (None: no rows) with them."""
        names = {"user": self.user, "item": self.item, "time": self.time, "weight": self.weight, "title": self.title}
        logs = {
            part: read_columns(file, format or self.format, names, self.header)
            for part, file in enumerate(files)
            if file is not None
        }
        whole = Interactions.from_encoded(encode_logs(list(logs.values())), name=self.name)
        if len(files) == 1:
            return whole, None
        sizes = [len(log.user) for log in logs.values()]
        return whole, np.repeat(np.array(list(logs), dtype=np.int8), sizes)

    def _refuse(self, reason: str, *settings: str) -> None:
        for setting in settings:
            value = getattr(self, setting)
            if value != type(self).model_fields[setting].default:
                raise ConfigError(f"{setting}={value!r}: {self.source} is {reason}; leave {setting} out")


def load_log(source: "DataSource | str | PathLike[str]") -> Interactions:
    """Return all pairs of a source, or of a name or path with the default settings, unsplit."""
    return (source if isinstance(source, DataSource) else DataSource(source=fspath(source))).load_log()


def _part_files(folder: Path) -> list[Path | None]:
    found: list[Path | None] = []
    for part, stems in PART_STEMS.items():
        files = [
            file
            for file in sorted(folder.iterdir())
            if file.name.split(".")[0] in stems and extension_of(file) in FORMAT_OF_EXTENSION and file.is_file()
        ]
        if len(files) > 1:
            raise DataError(
                f"{folder} has {files[0].name} and {files[1].name}; expected one {part} file, remove the other"
            )
        found.append(files[0] if files else None)
    if found[0] is None:
        endings = " ".join(FORMAT_OF_EXTENSION)
        raise DataError(f"{folder} has no train file; expected train, valid and test files ending in one of {endings}")
    return found


def _parts_of(whole: Interactions, labels: Labels) -> Parts:
    train, valid, test = (
        whole.rows(np.flatnonzero(labels == label), f"{whole.name}/{part}") for label, part in enumerate(Parts._fields)
    )
    return Parts(train, valid, test)


def _join(parts: Sequence[Interactions], name: str) -> tuple[Interactions, Labels]:
    """Return parts that share their id maps as one log, and the part of each row."""
    first = parts[0]

    def joined(column: str) -> Any:
        values = [getattr(part, column) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    whole = Interactions(
        joined("users"),
        joined("items"),
        first.user_ids,
        first.item_ids,
        times=joined("times"),
        weights=joined("weights"),
        item_titles=first.item_titles,
        name=name,
    )
    return whole, np.repeat(np.arange(len(parts), dtype=np.int8), [len(part) for part in parts])
