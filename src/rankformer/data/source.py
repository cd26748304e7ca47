"""`DataSource`: in settings that fit a run's manifest, where the three parts come from and what was done to them."""

import difflib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, model_validator

from rankformer.data.demo import DEMO_SEED, demo_log
from rankformer.data.interactions import Interactions
from rankformer.data.location import STDIN, Log, comes_split, is_there, read_file, read_logs
from rankformer.data.parts import Parts
from rankformer.data.readers.base import RawTable
from rankformer.data.readers.layouts import check_format
from rankformer.data.readers.options import ROLES, ReadOptions
from rankformer.data.readers.sql import file_of, is_database, redact
from rankformer.data.registry import DATASETS, find_dataset
from rankformer.data.shards import ShardedLog, is_sharded
from rankformer.data.splits import DEFAULT_PARTS, SplitName, check_parts, split_labels
from rankformer.data.weights import parse_half_life
from rankformer.errors import ConfigError, DataError

SPLIT_SETTINGS = ("split", "parts", "split_seed", "test_from", "test_days")
# What interactions that follow a log share with it.
NEW_SETTINGS = (
    *(*ROLES, "event_weights", "half_life", "header", "delimiter", "encoding", "time_format", "on_bad_row"),
    *("duplicates", "min_weight"),
)


def _path_text(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else value


class DataSource(ReadOptions):
    """How to get train, valid and test: everything needed to load them again, and nothing about this machine.

    A password in the address of a database is used here and is part of no copy, file or message. Steps, in this order:
    read, with the weights of events; merge duplicates (within each part of split data); drop light interactions;
    k-core; split. Decay with age is counted from the newest interaction of each part.
    """

    source: Annotated[str, BeforeValidator(_path_text)] = Field(min_length=1)
    """A registered name, a file, `-` for standard input, a pattern, a folder, or the address of a database."""
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
    duplicates: Literal["keep", "merge"] = "keep"
    """Whether duplicate interactions stay or become one."""
    min_weight: float | None = None
    """Smallest weight that counts as an interaction."""
    half_life: str | None = None
    """Age at which an interaction counts half, such as 12h, 30d or 8w; None for no decay."""
    k_core: int | None = Field(default=None, ge=1)
    """Distinct items that each user must have, and distinct users each item."""
    order: Literal["given", "clusters"] = "given"
    """How users and items are numbered: by their ids, or by clusters, so that a step reads large tables in order."""
    split: SplitName = "random"
    """How one log becomes three parts."""
    parts: Annotated[tuple[float, float, float], AfterValidator(check_parts)] = DEFAULT_PARTS
    """Fractions of train, valid and test."""
    split_seed: int = Field(default=0, ge=0)
    """Seed of the random splits."""
    test_from: str | None = None
    """Of the split by time, the date from which on interactions are the test part."""
    test_days: float | None = Field(default=None, gt=0)
    """Of the split by time, how many of the newest days are the test part."""
    _address: str = PrivateAttr(default="")

    def model_post_init(self, context: Any) -> None:
        """Keep what is secret in an address apart from the settings."""
        self._address = self.source
        self.__dict__["source"] = redact(self.source)

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.user is not None and self.user == self.item:
            raise ConfigError(f"column {self.user!r} cannot be both the user and the item; name two columns")
        if self.format is not None:
            check_format(self.format)
        if self.half_life is not None:
            parse_half_life(self.half_life)
        return self

    @property
    def name(self) -> str:
        """What to call the data in reports: the registered name, or the file's or folder's own."""
        if self.source in DATASETS:
            return self.source
        if is_database(self.source) and self.table:
            return self.table
        stem = "stdin" if self.source == STDIN else Path(self.source.partition("?")[0]).name.split(".")[0]
        return stem.strip("*?[]- ") or Path(self.source).parent.name.strip("*?[] ") or "data"

    def absolute(self) -> "DataSource":
        """Return the same source with a path that does not depend on the current folder."""
        if self.source in DATASETS or self.source == STDIN:
            return self
        kind = self.source.partition(":")[0]
        if kind in ("duckdb", "sqlite"):
            return self.model_copy(update={"source": f"{kind}:{file_of(self.source).absolute()}"})
        if is_database(self.source):
            return self
        return self.model_copy(update={"source": str(Path(self.source).absolute())})

    @property
    def is_there(self) -> bool:
        """Whether the data can be read: it is registered, a database, or the files exist."""
        return self.source in DATASETS or is_there(self.source)

    @property
    def comes_split(self) -> bool:
        """Whether train, valid and test are given as files, and not made from one log by us."""
        if self.source in DATASETS:
            return not DATASETS[self.source].is_generated
        return is_sharded(Path(self.source).expanduser()) or comes_split(self.source, self)

    def load(self) -> Parts:
        """Return train, valid and test over shared id maps."""
        log = self.load_log()
        if log.labels is None:
            moment = {"test_from": self.test_from, "test_days": self.test_days}
            return log.split(by=self.split, parts=self.parts, seed=self.split_seed, **moment)
        return Parts.of(log, log.labels)

    def load_block(self, rank: int, count: int) -> Parts:
        """Return the parts of one of `count` blocks of users; of a folder of shards, no other shard is read."""
        folder = Path(self.source).expanduser()
        if self.source in DATASETS or not is_sharded(folder):
            return self.load().block_of(rank, count)
        changes = ("duplicates", "min_weight", "half_life", "k_core", *SPLIT_SETTINGS, *ROLES)
        self.refuse("sharded", *changes, *ReadOptions.model_fields)
        return ShardedLog.open(folder, count).load_block(rank)

    def load_as_test(self) -> Parts:
        """Return one log as the test part, beside empty ones."""
        log = self.load_log()
        return Parts.of(log, np.full(len(log), 2, dtype=np.int8))

    def for_new(self, source: str, **changes: Any) -> "DataSource":
        """Return how to read interactions that follow these: columns, weights and decay are the same unless changed."""
        kept = {name: value for name in NEW_SETTINGS if (value := getattr(self, name)) is not None}
        return DataSource(**{**kept, **changes, "source": source})

    def load_log(self) -> Interactions:
        """Return all interactions in one log; of split data, train comes first and test last."""
        log = self._read()
        if log.labels is not None:
            self.refuse("already split", *SPLIT_SETTINGS)
        if self.duplicates == "merge":
            log = log.drop_duplicates()
        if self.min_weight is not None:
            log = log.min_weight(self.min_weight)
        if self.half_life is not None:
            log = log.decay(self.half_life)
        log = log if self.k_core is None else log.k_core(self.k_core)
        return log.clustered() if self.order == "clusters" and len(log) else log

    def stream(self) -> Iterator[Log]:
        """Yield the log as it is read, before anything is done to it, in tables of bounded size where possible."""
        if self.source in DATASETS:
            log = self._read_registered()
            for label in range(3):
                rows = np.flatnonzero(np.asarray(log.labels) == label)
                yield Log(RawTable(log.rows(rows).to_arrow()), label)
            return
        self._check_there()
        if is_sharded(Path(self.source).expanduser()):
            raise DataError(f"{self.source} is sharded already; shard the log that it was made of")
        yield from read_logs(*self._reading(), whole=False)

    def _reading(self) -> tuple[str, ReadOptions, dict[str, str | None]]:
        names = {role: getattr(self, role) for role in ROLES}
        return self._address if is_database(self.source) else self.source, self, names

    def _check_there(self) -> None:
        if self.source == STDIN or is_there(self.source):
            return
        near = difflib.get_close_matches(self.source, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"registered names are {', '.join(DATASETS)}"
        raise DataError(f"{self.source!r} is not a known dataset, folder or file; {hint}")

    def _read(self) -> Interactions:
        if self.source in DATASETS:
            return self._read_registered()
        if is_sharded(Path(self.source).expanduser()):
            self.refuse("sharded and has fixed columns", *ROLES, *ReadOptions.model_fields)
            return ShardedLog.open(Path(self.source).expanduser()).load()
        self._check_there()
        return self._joined(list(read_logs(*self._reading())))

    def _read_registered(self) -> Interactions:
        self.refuse("registered and has fixed columns", *ROLES, *ReadOptions.model_fields)
        dataset = DATASETS[self.source]
        if dataset.is_generated:
            log = demo_log()
            labels = split_labels(log.users, log.times, seed=DEMO_SEED)
            return replace(log, labels=labels).rows(np.argsort(labels, kind="stable"))
        folder = find_dataset(dataset.name)
        pairs = ReadOptions(format="pairs")
        logs = [read_file(folder / file.name, pairs, {}, part=part) for part, file in enumerate(dataset.files)]
        log = self._joined(list(chain.from_iterable(logs)))
        # The published ids are indices, gaps included, and so are the sizes in the paper's code.
        users = np.asarray(log.user_ids.ids)[log.users]
        items = np.asarray(log.item_ids.ids)[log.items]
        if users.dtype.kind != "i" or items.dtype.kind != "i" or min(users.min(), items.min()) < 0:
            raise DataError(f"{folder}: expected integers from 0 on every line; download {dataset.name} again")
        return Interactions.from_indices(users, items, name=dataset.name, labels=log.labels)

    def _joined(self, logs: list[Log]) -> Interactions:
        """Return logs one after another, with the labels of their parts if they have any."""
        log = Interactions.from_logs([each.table for each in logs], name=self.name)
        if logs[0].label is None:
            return log
        labels, sizes = zip(*((each.label, each.table.table.num_rows) for each in logs), strict=True)
        return replace(log, labels=np.repeat(np.array(labels, dtype=np.int8), sizes))

    def refuse(self, reason: str, *settings: str) -> None:
        """Raise a ConfigError if one of these settings was given, since it has no effect for this reason."""
        for setting in settings:
            value = getattr(self, setting)
            if value != type(self).model_fields[setting].default:
                raise ConfigError(f"{setting}={value!r}: {self.source} is {reason}; leave {setting} out")
