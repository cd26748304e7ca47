"""`DataSource`: in settings that fit a run's manifest, where the three parts come from and what was done to them."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from rankformer.data.columns import read_log
from rankformer.data.demo import DEMO_SEED, demo_log
from rankformer.data.interactions import Interactions, Parts
from rankformer.data.readers import READER_OF_SUFFIX, reader_by_name, reader_by_suffix
from rankformer.data.readers.base import KNOWN_NAMES
from rankformer.data.registry import DATASETS, find_dataset
from rankformer.data.splits import DEFAULT_PARTS, SplitName, check_parts, split_labels
from rankformer.data.weights import check_event_weights, parse_half_life
from rankformer.errors import ConfigError, DataError
from rankformer.settings import Settings

SPLIT_SETTINGS = ("split", "parts", "split_seed", "test_from", "test_days")
PART_STEMS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}


def _path_text(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else value


class DataSource(Settings):
    """How to get train, valid and test: everything needed to load them again, and nothing about this machine.

    Steps, in this order: read, with the weights of events; merge duplicates (within each part of split data); drop
    light interactions; k-core; split. Decay with age is counted from the newest interaction of each part.
    """

    source: Annotated[str, BeforeValidator(_path_text)] = Field(min_length=1)
    """A registered name, a folder with train, valid and test files, or one file."""
    format: str | None = None
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
    event: str | None = None
    """Name of the column that says what happened; needs event_weights."""
    event_weights: dict[str, float] | None = None
    """Weight of each event, of those that are not listed by the name other; 0 drops them."""
    header: bool | None = None
    """Whether csv and tsv files start with column names; None finds out."""
    duplicates: Literal["keep", "merge"] = "keep"
    """Whether duplicate interactions stay or become one."""
    min_weight: float | None = None
    """Smallest weight that counts as an interaction."""
    half_life: str | None = None
    """Age at which an interaction counts half, such as 12h, 30d or 8w; None for no decay."""
    k_core: int | None = Field(default=None, ge=1)
    """Distinct items that each user must have, and distinct users each item."""
    split: SplitName = "random"
    """How one log becomes three parts."""
    parts: tuple[float, float, float] = DEFAULT_PARTS
    """Fractions of train, valid and test."""
    split_seed: int = Field(default=0, ge=0)
    """Seed of the random splits."""
    test_from: str | None = None
    """Of the split by time, the date from which on interactions are the test part."""
    test_days: float | None = Field(default=None, gt=0)
    """Of the split by time, how many of the newest days are the test part."""

    @field_validator("parts")
    @classmethod
    def _parts_add_up(cls, parts: tuple[float, float, float]) -> tuple[float, float, float]:
        return check_parts(parts)

    @field_validator("half_life")
    @classmethod
    def _half_life_is_one(cls, half_life: str | None) -> str | None:
        if half_life is not None:
            parse_half_life(half_life)
        return half_life

    @field_validator("event_weights")
    @classmethod
    def _event_weights_are_weights(cls, weights: dict[str, float] | None) -> dict[str, float] | None:
        return None if weights is None else check_event_weights(weights)

    @field_validator("format")
    @classmethod
    def _format_is_known(cls, format: str | None) -> str | None:
        return None if format is None else reader_by_name(format).name

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.user is not None and self.user == self.item:
            raise ConfigError(f"column {self.user!r} cannot be both the user and the item; name two columns")
        return self

    @property
    def name(self) -> str:
        """What to call the data in reports: the registered name, or the file's or folder's own."""
        return self.source if self.source in DATASETS else Path(self.source).name.split(".")[0] or "data"

    def absolute(self) -> "DataSource":
        """Return the same source with a path that does not depend on the current folder."""
        if self.source in DATASETS:
            return self
        return self.model_copy(update={"source": str(Path(self.source).absolute())})

    @property
    def comes_split(self) -> bool:
        """Whether train, valid and test are given as files, and not made from one log by us."""
        if self.source in DATASETS:
            return not DATASETS[self.source].is_generated
        return Path(self.source).expanduser().is_dir()

    def load(self) -> Parts:
        """Return train, valid and test over shared id maps."""
        log = self.load_log()
        if log.labels is None:
            moment = {"test_from": self.test_from, "test_days": self.test_days}
            return log.split(by=self.split, parts=self.parts, seed=self.split_seed, **moment)
        return Parts.of(log, log.labels)

    def load_as_test(self) -> Parts:
        """Return one log as the test part, beside empty ones."""
        log = self.load_log()
        return Parts.of(log, np.full(len(log), 2, dtype=np.int8))

    def load_log(self) -> Interactions:
        """Return all interactions in one log; of split data, train comes first and test last."""
        log = self._read()
        if log.labels is not None:
            self._refuse("already split", *SPLIT_SETTINGS)
        if self.duplicates == "merge":
            log = log.drop_duplicates()
        if self.min_weight is not None:
            log = log.min_weight(self.min_weight)
        if self.half_life is not None:
            log = log.decay(self.half_life)
        return log if self.k_core is None else log.k_core(self.k_core)

    def _read(self) -> Interactions:
        if self.source in DATASETS:
            return self._read_registered()
        path = Path(self.source).expanduser()
        if path.is_dir():
            return self._read_files(_part_files(path))
        if not path.exists():
            near = difflib.get_close_matches(self.source, DATASETS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"registered names are {', '.join(DATASETS)}"
            raise DataError(f"{self.source!r} is not a known dataset, folder or file; {hint}")
        return self._read_files([path])

    def _read_registered(self) -> Interactions:
        self._refuse("registered and has fixed columns", "format", *KNOWN_NAMES, "event", "event_weights", "header")
        dataset = DATASETS[self.source]
        if dataset.is_generated:
            log = demo_log()
            labels = split_labels(log.users, log.times, seed=DEMO_SEED)
            return replace(log, labels=labels).rows(np.argsort(labels, kind="stable"))
        folder = find_dataset(dataset.name)
        log = self._read_files([folder / file.name for file in dataset.files], format="pairs")
        # The published ids are indices, gaps included, and so are the sizes in the paper's code.
        users = np.asarray(log.user_ids.ids)[log.users]
        items = np.asarray(log.item_ids.ids)[log.items]
        if users.dtype.kind != "i" or items.dtype.kind != "i" or min(users.min(), items.min()) < 0:
            raise DataError(f"{folder}: expected integers from 0 on every line; download {dataset.name} again")
        return Interactions.from_indices(users, items, name=dataset.name, labels=log.labels)

    def _read_files(self, files: Sequence[Path | None], format: str | None = None) -> Interactions:
        """Return the log in one file, or in those of train, valid and test (None: no file) with its labels."""
        names = {role: getattr(self, role) for role in (*KNOWN_NAMES, "event")}
        logs = {
            label: read_log(file, format or self.format, names, self.header, self.event_weights)
            for label, file in enumerate(files)
            if file is not None
        }
        log = Interactions.from_logs(list(logs.values()), name=self.name)
        if len(files) == 1:
            return log
        sizes = [each.table.num_rows for each in logs.values()]
        return replace(log, labels=np.repeat(np.array(list(logs), dtype=np.int8), sizes))

    def _refuse(self, reason: str, *settings: str) -> None:
        for setting in settings:
            value = getattr(self, setting)
            if value != type(self).model_fields[setting].default:
                raise ConfigError(f"{setting}={value!r}: {self.source} is {reason}; leave {setting} out")


def _part_files(folder: Path) -> list[Path | None]:
    found: list[Path | None] = []
    for part, stems in PART_STEMS.items():
        files = [
            file
            for file in sorted(folder.iterdir())
            if file.name.split(".")[0] in stems and reader_by_suffix(file) is not None and file.is_file()
        ]
        if len(files) > 1:
            raise DataError(
                f"{folder} has {files[0].name} and {files[1].name}; expected one {part} file, remove the other"
            )
        found.append(files[0] if files else None)
    if found[0] is None:
        endings = " ".join(READER_OF_SUFFIX)
        raise DataError(f"{folder} has no train file; expected train, valid and test files ending in one of {endings}")
    return found
