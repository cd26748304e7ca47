"""`Interactions`: a log of user-item interactions, as an immutable value."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rankformer.data.cleaning import distinct, k_core_mask
from rankformer.data.clusters import clustered_order
from rankformer.data.columns import extended_titles, first_titles, join_logs
from rankformer.data.conversion import from_csr, from_pandas, parts_of, picked
from rankformer.data.id_map import IdMap
from rankformer.data.location import read_logs
from rankformer.data.parts import Block, Parts
from rankformer.data.readers.base import RawTable
from rankformer.data.readers.options import ReadOptions
from rankformer.data.splits import DEFAULT_PARTS, Labels, split_labels
from rankformer.data.weights import decay, half_life_of, joined_weights
from rankformer.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Interactions:
    """A log of user-item interactions over two fixed id maps.

    Row order is kept. Parts made by a split share the id maps of the whole, so an index means the same everywhere;
    an id may occur in a map without occurring in an interaction.

    Attributes:
        users: (E,) int32 user index of each interaction, read-only.
        items: (E,) int32 item index of each interaction, read-only.
        user_ids: raw user ids, position = index.
        item_ids: raw item ids, position = index.
        times: (E,) when each interaction happened, int64 or float64 (any unit, only the order counts), or None.
        weights: (E,) float32 strength of each interaction, or None.
        half_life: age, in the unit of `times`, at which an interaction counts half; None for no decay.
        labels: (E,) int8 part of each interaction, 0 train, 1 valid and 2 test, if the log is already split, or None.
        item_titles: a readable title per item, aligned with item_ids (null where unknown), or None.
        name: what to call this data in reports, for example "epinions/train".
        counted_at: when weights that decay with age were counted, in the unit that `times` had; None without decay.
        block: for a rank's block of users, where it lies in the whole log; None for a log that is the whole.
    """

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    user_ids: IdMap
    item_ids: IdMap
    times: NDArray[Any] | None = None
    weights: NDArray[np.float32] | None = None
    item_titles: pa.Array | None = None
    name: str = "interactions"
    labels: Labels | None = None
    half_life: float | None = None
    counted_at: float | None = None
    block: Block | None = None

    def __post_init__(self) -> None:
        size = len(self.users)
        for label, column in self.columns().items():
            if len(column) != size:
                raise DataError(f"{label} has {len(column)} rows where users has {size}; they must match")
            frozen = column.view()
            frozen.flags.writeable = False
            object.__setattr__(self, label, frozen)
        for label, index, ids in (("user", self.users, self.user_ids), ("item", self.items, self.item_ids)):
            if size and not (index.min() >= 0 and index.max() < len(ids)):
                raise DataError(f"{label} indices must lie in 0..{len(ids) - 1}; found {index.min()}..{index.max()}")
        if self.item_titles is not None and len(self.item_titles) != len(self.item_ids):
            raise DataError(f"{len(self.item_titles)} titles for {len(self.item_ids)} items; they must match")

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what there is of each interaction, by name."""
        columns = {name: getattr(self, name) for name in ("users", "items", "times", "weights", "labels")}
        return {name: column for name, column in columns.items() if column is not None}

    @classmethod
    def from_indices(
        cls,
        users: Any,
        items: Any,
        num_users: int | None = None,
        num_items: int | None = None,
        **columns: Any,
    ) -> "Interactions":
        """Return interactions whose raw ids are the indices themselves; sizes default to the largest index + 1."""
        users = np.asarray(users, dtype=np.int32)
        items = np.asarray(items, dtype=np.int32)
        num_users = num_users if num_users is not None else int(users.max(initial=-1)) + 1
        num_items = num_items if num_items is not None else int(items.max(initial=-1)) + 1
        return cls(users, items, IdMap.dense(num_users), IdMap.dense(num_items), **columns)

    @classmethod
    def from_logs(cls, logs: Sequence[RawTable], name: str = "interactions") -> "Interactions":
        """Return logs of `rankformer.data.columns`, one after another, over id maps that hold the ids of all of them.

        Times and weights are kept if all of them have them.
        """
        table = join_logs(logs)
        user_ids, users = IdMap.encode(table["user"])
        item_ids, items = IdMap.encode(table["item"])
        known = {column for column in table.column_names if column == "title" or not table[column].null_count}
        return cls(
            users,
            items,
            user_ids,
            item_ids,
            times=table["time"].to_numpy() if "time" in known else None,
            weights=table["weight"].to_numpy() if "weight" in known else None,
            item_titles=first_titles(table["title"], items, len(item_ids)) if "title" in known else None,
            name=name,
        )

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        user: str | None = None,
        item: str | None = None,
        time: str | None = None,
        weight: str | None = None,
        title: str | None = None,
        event: str | None = None,
        duplicates: str = "keep",
        **options: Any,
    ) -> "Interactions":
        """Return the interactions in a file, or in several of them one after another.

        Args:
            path: a csv, tsv, inter, parquet, jsonl or txt file (text may be packed), a pattern such as `logs/*.csv`,
                or the address of a database.
            user: name of the user column; when None, common names such as `user_id` are tried. A file without a
                header has the columns "0", "1", ... of which the first is the user and the second the item.
            item: name of the item column, in the same way.
            time: name of the time column, in the same way; an empty name leaves it out. Numbers or ISO dates.
            weight: name of the weight column, in the same way. Weights count: see `confidence`.
            title: name of the column with a readable item title, in the same way.
            event: name of the column that says what happened, such as "view" or "purchase"; needs `event_weights`.
            duplicates: "keep" duplicate interactions, or "merge" them as `drop_duplicates` does.
            **options: how to read it: the settings of `rankformer.data.readers.options.ReadOptions`, such as format,
                header, delimiter, encoding, time_format, on_bad_row, query and table. Of them, event_weights is the
                weight of each event, in place of a weight column (or to multiply one that is named). Events of weight
                0 are dropped. An event that is not listed is rejected, unless "other" has a weight.
        """
        if duplicates not in ("keep", "merge"):
            raise ConfigError(f"duplicates={duplicates!r}: expected 'keep' or 'merge'")
        if Path(path).is_dir():
            raise DataError(f"{path} is a folder; expected a file (a folder of train/valid/test files is a DataSource)")
        names = {"user": user, "item": item, "time": time, "weight": weight, "title": title, "event": event}
        logs = list(read_logs(str(path), ReadOptions(**options), names))
        log = cls.from_logs([each.table for each in logs], name=Path(path).name.split(".")[0])
        return log.drop_duplicates() if duplicates == "merge" else log

    @classmethod
    def from_arrow(
        cls,
        table: pa.Table,
        *,
        name: str = "interactions",
        event_weights: Mapping[str, float] | None = None,
        **columns: str | None,
    ) -> "Interactions":
        """Return the interactions in an Arrow table.

        Columns are named by user=, item=, time=, weight=, title=, event=; `read` says what event_weights are.
        """
        return cls.from_logs([picked(table, columns, event_weights)], name)

    @classmethod
    def from_pandas(cls, frame: Any, **columns: Any) -> "Interactions":
        """Return the interactions in a pandas frame, with the arguments of `from_arrow`."""
        return cls.from_arrow(from_pandas(frame), **columns)

    @classmethod
    def from_polars(cls, frame: Any, **columns: Any) -> "Interactions":
        """Return the interactions in a polars frame, with the arguments of `from_arrow`."""
        return cls.from_arrow(frame.to_arrow(), **columns)

    @classmethod
    def of(cls, data: Any, **columns: Any) -> "Interactions":
        """Return interactions of whatever holds them: a frame, an Arrow table, a scipy matrix, a path, or themselves.

        Args:
            data: a pandas or polars frame or another table that Arrow can read, a scipy sparse matrix of users by
                items, the path of a file, or `Interactions`.
            **columns: user=, item=, time=, weight=, title= name columns, guessed without them; event= and
                event_weights= are as for `read`.
        """
        return cls.parts_of([data], **columns)[0]

    @classmethod
    def parts_of(cls, parts: Sequence[Any], **columns: Any) -> "list[Interactions]":
        """Return several of what `of` takes; tables among them share one map of users and one of items."""
        return parts_of(cls, parts, columns)

    @classmethod
    def from_csr(
        cls, matrix: Any, user_ids: Sequence[Any] | None = None, item_ids: Sequence[Any] | None = None
    ) -> "Interactions":
        """Return an interaction per non-zero entry of a scipy sparse matrix; rows are users, values are weights."""
        return from_csr(cls, matrix, user_ids, item_ids)

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        extras = [label for label in ("times", "weights", "item_titles") if getattr(self, label) is not None]
        size = f"{len(self):,} interactions, {self.num_users:,} users x {self.num_items:,} items"
        return f"Interactions({', '.join([f'{self.name}: {size}', *extras])})"

    @property
    def num_users(self) -> int:
        """Size of the user map (users without an interaction included)."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Size of the item map (items without an interaction included)."""
        return len(self.item_ids)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over ids, interactions in order, times, weights and half-life: one fingerprint, one log.

        That of a block is the fingerprint of the whole log.
        """
        if self.block is not None:
            return self.block.fingerprint
        digest = hashlib.sha256()
        digest.update(self.user_ids.fingerprint.encode())
        digest.update(self.item_ids.fingerprint.encode())
        for column in (self.users, self.items, self.times, self.weights):
            if column is None:
                digest.update(b"none")
            else:
                little = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
                digest.update(little.dtype.str.encode())
                digest.update(little.tobytes())
        if self.half_life is not None:
            digest.update(f"half-life {self.half_life!r}".encode())
        return digest.hexdigest()

    @property
    def confidence(self) -> NDArray[np.float32] | None:
        """What each interaction counts, (E,): its weight, halved with each `half_life` of age; None where all count 1.

        Age is counted from the newest interaction of this log, so that each part of a split has its own.
        """
        if self.half_life is None or self.times is None:
            return self.weights
        factors = decay(self.times, self.half_life)
        return (factors if self.weights is None else factors * self.weights).astype(np.float32)

    def rows(self, chosen: NDArray[Any], name: str | None = None) -> "Interactions":
        """Return the interactions at the given row numbers (or boolean mask), over the same id maps."""
        chosen_columns = {label: column[chosen] for label, column in self.columns().items()}
        return replace(self, **chosen_columns, name=name or self.name)

    def block_of(self, first: int, last: int) -> "Interactions":
        """Return the interactions of the users from first to before last, over a map of these users alone."""
        block = Block(first, last - first, self.num_users, self.fingerprint, self.user_ids.fingerprint)
        aged = replace(self, weights=self.confidence, half_life=None)  # age is counted from the newest of the whole
        part = aged.rows((self.users >= first) & (self.users < last))
        ids = IdMap(self.user_ids.ids.slice(first, last - first))
        return replace(part, users=part.users - np.int32(first), user_ids=ids, block=block)

    def keep(self, chosen: NDArray[np.bool_]) -> "Interactions":
        """Return the interactions under a boolean mask, over id maps without the ids that have none left."""
        part = self.rows(chosen)
        used_users, users = np.unique(part.users, return_inverse=True)
        used_items, items = np.unique(part.items, return_inverse=True)
        return part._renumbered(users, items, used_users, used_items)

    def _renumbered(
        self, users: NDArray[Any], items: NDArray[Any], user_order: NDArray[Any], item_order: NDArray[Any]
    ) -> "Interactions":
        """Return the same interactions under other indices, given those of today in the order of the new ones."""
        return replace(
            self,
            users=users.astype(np.int32),
            items=items.astype(np.int32),
            user_ids=IdMap(self.user_ids.take(user_order)),
            item_ids=IdMap(self.item_ids.take(item_order)),
            item_titles=None if self.item_titles is None else self.item_titles.take(pa.array(item_order)),
        )

    def extended(self, new: "Interactions") -> "Interactions":
        """Return these interactions followed by new ones; known ids keep their indices and new ids follow them.

        Weights are then those of `confidence`, at the time of the newest interaction: what was counted before has
        become older.

        Raises:
            DataError: ids are of different kinds, or weights decay with age in one of the two alone.
        """
        user_ids, users_of = self.user_ids.extended(new.user_ids, "user")
        item_ids, items_of = self.item_ids.extended(new.item_ids, "item")
        weights, counted_at = joined_weights(self, new) if len(new) else (self.confidence, self.counted_at)
        titles = extended_titles(self.item_titles, new.item_titles, items_of, len(item_ids))
        return Interactions(
            np.concatenate([self.users, users_of[new.users].astype(np.int32)]),
            np.concatenate([self.items, items_of[new.items].astype(np.int32)]),
            user_ids,
            item_ids,
            weights=weights,
            item_titles=titles,
            name=self.name,
            counted_at=counted_at,
        )

    def drop_duplicates(self) -> "Interactions":
        """Return each distinct interaction once, where it first occurs: weights summed, the latest time kept.

        Each part of a log that is already split keeps its own copy.
        """
        rows, groups = distinct(self.users, self.items, self.labels)
        times, weights = None, None
        if self.times is not None:
            times = self.times[rows]
            np.maximum.at(times, groups, self.times)
        if self.weights is not None:
            # Summed in float64 and rounded once, so that the result does not depend on how numpy groups the additions.
            weights = np.bincount(groups, weights=self.weights, minlength=len(rows)).astype(np.float32)
        return replace(self.rows(rows), times=times, weights=weights)

    def min_weight(self, smallest: float) -> "Interactions":
        """Return the interactions of at least this weight; ids left without one are dropped from the maps."""
        if self.weights is None:
            raise DataError(f"{self.name} has no weights, so min_weight cannot be applied; name a weight column")
        if not math.isfinite(smallest):
            raise ConfigError(f"min_weight={smallest}: expected a finite number")
        mask = self.weights >= smallest
        if not mask.any():
            raise DataError(f"{self.name} has no weight of at least {smallest}; use a smaller min_weight")
        return self.keep(mask)

    def decay(self, half_life: str | float) -> "Interactions":
        """Return the same interactions, counting less with age: see `confidence`.

        Args:
            half_life: age at which an interaction counts half, such as "12h", "30d" or "8w", or a number in the unit of
                the times. Times are then seconds, milli-, micro- or nanoseconds since 1970, which their size tells.
        """
        return replace(self, half_life=half_life_of(self.times, half_life, self.name))

    def k_core(self, k: int) -> "Interactions":
        """Return the largest part in which each user has k distinct items and each item k distinct users.

        Duplicates of an interaction that stays all stay; ids left without one are dropped from the maps.
        """
        if k < 1:
            raise ConfigError(f"k_core={k}: expected an integer from 1")
        mask = k_core_mask(self.users, self.items, k)
        if not mask.any():
            raise DataError(f"{self.name} has no {k}-core: every interaction would be dropped; use a smaller k")
        return self.keep(mask)

    def clustered(self) -> "Interactions":
        """Return the same interactions with users and items numbered by cluster.

        Raw ids, rows and their order stay as they are: see `rankformer.data.clusters`.
        """
        user_order, item_order = clustered_order(self.users, self.items, self.num_users, self.num_items)
        positions = np.argsort(user_order)[self.users], np.argsort(item_order)[self.items]
        return self._renumbered(*positions, user_order, item_order)

    def split(self, by: str = "random", parts: Sequence[float] = DEFAULT_PARTS, seed: int = 0, **moment: Any) -> Parts:
        """Return train, valid and test over the same id maps; see `rankformer.data.splits` for the methods.

        The split by time takes `test_from`, a date, or `test_days`.
        """
        return Parts.of(self, split_labels(self.users, self.times, by, parts, seed, **moment))

    def to_arrow(self) -> pa.Table:
        """Return a table of raw ids: user, item, and time, weight, title where known; `from_arrow` reads it back.

        Weights are those of `confidence`.
        """
        columns = {"user": self.user_ids.take(self.users), "item": self.item_ids.take(self.items)}
        if self.times is not None:
            columns["time"] = pa.array(self.times)
        weights = self.confidence
        if weights is not None:
            columns["weight"] = pa.array(weights)
        if self.item_titles is not None:
            columns["title"] = self.item_titles.take(pa.array(self.items))
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Return the table of `to_arrow` as a pandas frame."""
        return self.to_arrow().to_pandas()
