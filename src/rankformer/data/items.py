"""`Items`: titles and attributes of items, by raw id."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankformer.data.columns import pick_items
from rankformer.data.conversion import from_pandas
from rankformer.data.id_map import IdMap, read_id_lines
from rankformer.data.readers import read_table, reader_by_suffix
from rankformer.data.readers.base import RawTable
from rankformer.data.readers.options import ReadOptions
from rankformer.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Items:
    """Titles and attributes, one row per item.

    Attributes:
        ids: raw ids; aligned with a model, its items come first and in its order, those it has never met after them.
        attributes: a column per attribute: booleans, numbers, strings, dates or lists of strings, null where unknown.
        titles: a string per item, null where unknown, or None.
        name: what to call them in an error.
    """

    ids: IdMap
    attributes: pa.Table = field(default_factory=lambda: pa.table({}))
    titles: pa.Array | None = None
    name: str = "items"

    def __post_init__(self) -> None:
        for label, column in (*self.columns.items(), ("title", self.titles)):
            if column is not None and len(column) != len(self.ids):
                raise DataError(f"{len(column)} values of {label!r} for {len(self.ids)} items; they must match")

    @classmethod
    def read(
        cls, path: str | Path, *, item: str | None = None, title: str | None = None, format: str | None = None
    ) -> "Items":
        """Return the items in a csv, tsv, parquet or jsonl file whose columns have names.

        Args:
            path: the file; every column but those of id and title becomes an attribute.
            item: name of the id column; when None, common names such as `item_id` and `id` are tried.
            title: name of the title column, in the same way; an empty name reads none.
            format: format of the file when its extension does not say.
        """
        return cls._from_raw(read_table(Path(path), None, ReadOptions(format=format, header=True)), item, title)

    @classmethod
    def from_arrow(cls, table: pa.Table, *, item: str | None = None, title: str | None = None) -> "Items":
        """Return the items in an Arrow table, with the arguments of `read`."""
        return cls._from_raw(RawTable(table, "items"), item, title)

    @classmethod
    def from_pandas(cls, frame: Any, **columns: Any) -> "Items":
        """Return the items in a pandas frame, with the arguments of `read`."""
        return cls.from_arrow(from_pandas(frame), **columns)

    @classmethod
    def _from_raw(cls, raw: RawTable, item: str | None, title: str | None) -> "Items":
        named, attributes = pick_items(raw, item, title)
        titles = named.table["title"].combine_chunks() if "title" in named.table.column_names else None
        return cls(IdMap(named.table["item"].combine_chunks()), attributes, titles, raw.name)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return (
            f"Items({self.name}: {len(self):,} items with {', '.join(self.attributes.column_names) or 'no attributes'})"
        )

    @cached_property
    def columns(self) -> dict[str, pa.Array]:
        """The attributes by name, each as one array."""
        return {name: self.attributes[name].combine_chunks() for name in self.attributes.column_names}

    def align(self, item_ids: IdMap, titles: pa.Array | None = None) -> "Items":
        """Return these items in the order of a model's, followed by those that the model does not have.

        Args:
            item_ids: raw ids of the model's items; one that is missing here has no attributes.
            titles: their titles, used where this table has none.

        Raises:
            DataError: the ids are of another kind than the model's.
        """
        ids = self.ids_like(item_ids)
        found = ids.index_of(item_ids.ids)
        new = np.setdiff1d(np.arange(len(ids)), found)
        rows = np.concatenate([found, new])
        order = pa.array(rows, mask=rows < 0)
        whole = IdMap(pa.concat_arrays([item_ids.ids, ids.take(new)]))
        named = None if self.titles is None else self.titles.take(order)
        if titles is not None:
            known = pa.concat_arrays([titles.cast(pa.string()), pa.nulls(len(new), pa.string())])
            named = known if named is None else pc.coalesce(named, known)
        columns = {name: column.take(order) for name, column in self.columns.items()}
        return Items(whole, pa.table(columns), named, self.name)

    def with_sets(self, sets: Mapping[str, Iterable[Any]]) -> "Items":
        """Return the same items with a boolean attribute per named set of raw ids; ids outside are ignored.

        Raises:
            ConfigError: an attribute has the name of a set.
        """
        columns = dict(self.columns)
        for name, raw_ids in sets.items():
            if name in columns:
                raise ConfigError(f"the set {name!r} has the name of an attribute of {self.name}; call it otherwise")
            chosen = np.zeros(len(self), dtype=np.bool_)
            indices = self.ids.index_of(raw_ids)
            chosen[indices[indices >= 0]] = True
            columns[name] = pa.array(chosen)
        return replace(self, attributes=pa.table(columns))

    def ids_like(self, item_ids: IdMap) -> IdMap:
        """Return the ids in the type of a model's; each must be written exactly as its value there is."""
        ids = self.ids.typed_like(item_ids)
        if ids is None:
            found, kind = self.ids.ids, item_ids.ids.type
            example = found[0].as_py() if len(found) else ""
            raise DataError(
                f"{self.name} has item ids of type {found.type}, such as {example!r}, and the model has ids of type "
                f"{kind}; write them as in the interaction log"
            )
        return ids


def read_item_ids(path: Path, known: IdMap) -> list[Any]:
    """Return the item ids in a file, as values of the known ids' type: a set, an allow list or a block list.

    A csv, tsv, parquet or jsonl file is read like an items file, any other is text with one id per line.
    """
    reader = reader_by_suffix(path)
    if reader is not None and reader.name != "txt":
        ids: list[Any] = Items.read(path, title="").ids_like(known).ids.to_pylist()
        return ids
    return [known.parse(line) for line in read_id_lines(path, "item")]
