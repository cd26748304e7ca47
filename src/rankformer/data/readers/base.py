"""What the readers return: a `RawTable`, put together from batches, and the `BadRows` that were left out."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankformer.data.readers.options import KNOWN_NAMES, ReadOptions
from rankformer.errors import DataError
from rankformer.files import write_bytes_atomic

logger = logging.getLogger("rankformer.data")

# A record longer than a block cannot be parsed, so a block holds more than any sensible id or title.
BLOCK_BYTES = 8 << 20
SHOWN_BAD_ROWS = 100
ENCODED = pa.dictionary(pa.int32(), pa.string())  # a distinct string once, and four bytes per row
_NO_STRINGS = pa.array([], pa.string())


class BadRows:
    """The rows that were left out: how many for each reason, and the first of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: list[str] = []
        self.records: list[int] = []  # of those that the parser left out, counted from 0 without the header

    def add(self, reason: str, example: str = "", count: int = 1) -> None:
        """Count rows left out for a reason; the example says where and what."""
        self.counts[reason] += count
        if example and len(self.examples) < SHOWN_BAD_ROWS:
            self.examples.append(example)

    def report(self, name: str, kept: int, path: str | None) -> None:
        """Say how many rows were left out and why, and write the examples to a file if one is named."""
        if not (total := self.counts.total()):
            return
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
        line = f"{name}: skipped {total:,} of {kept + total:,} rows ({reasons})"
        if path is not None:
            write_bytes_atomic(Path(path), ("\n".join([line, *self.examples]) + "\n").encode("utf-8", "replace"))
        where = "name a file for them with --bad-rows" if path is None else f"examples in {path}"
        logger.warning("%s; the first: %s; %s", line, self.examples[0] if self.examples else "unknown", where)


DEFAULTS = ReadOptions()


@dataclass(frozen=True)
class RawTable:
    """A table as read.

    Attributes:
        table: the columns; every one holds strings when `is_text`.
        name: what to call the table in an error, usually the file name.
        locate: where a row is for a person, such as "line 7" (rows count from 0).
        is_text: whether values came as strings, so that numbers among them have to be recognised.
        has_header: whether the column names are the data's own and not positions.
        options: how it was read.
        bad: the rows that were left out.
    """

    table: pa.Table
    name: str = "table"
    locate: Callable[[int], str] = lambda row: f"row {row + 1}"
    is_text: bool = False
    has_header: bool = True
    options: ReadOptions = DEFAULTS
    bad: BadRows = field(default_factory=BadRows)


def is_needed(column: str, named: Collection[str] | None) -> bool:
    """Return whether a column could be one of a log's, given those that the caller named (None: all are needed)."""
    if named is None or column in named:
        return True
    return any(column.strip().lower() in known for known in KNOWN_NAMES.values())


def with_unread(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the table with an empty stand-in for each column that was not read, so that errors can list all names."""
    read = set(table.column_names)
    return pa.table([table[name] if name in read else pa.nulls(table.num_rows) for name in names], names=names)


class _Strings:
    """The distinct strings of a column so far."""

    def __init__(self) -> None:
        self.values = _NO_STRINGS

    def encode(self, column: pa.Array) -> pa.DictionaryArray:
        """Return each string by its position among the distinct ones, which are not attached: they will be more."""
        local = column if column.type == ENCODED else column.dictionary_encode()
        positions = pc.index_in(local.dictionary, value_set=self.values).fill_null(-1).to_numpy().copy()
        new = positions < 0
        positions[new] = np.arange(len(self.values), len(self.values) + new.sum())
        self.values = pa.concat_arrays([self.values, local.dictionary.filter(pa.array(new))])
        return pa.DictionaryArray.from_arrays(pa.array(positions).take(local.indices), _NO_STRINGS, safe=False)


def collect(batches: Iterable[pa.RecordBatch], name: str, options: ReadOptions) -> pa.Table:
    """Return batches as one table that holds each distinct string of a column once, and nothing of the batches."""
    strings: dict[str, _Strings] = {}
    tables: list[pa.Table] = []
    rows = 0
    try:
        for group in _grouped(batches):
            rows += sum(batch.num_rows for batch in group)
            check_rows(rows, name, options)
            columns = {}
            for position, (column, kind) in enumerate(zip(group[0].schema.names, group[0].schema.types, strict=True)):
                # Copied, since a view of one column would keep the whole batch in memory.
                values = pa.concat_arrays([batch.column(position) for batch in group] + [pa.array([], kind)])
                is_text = pa.types.is_string(kind) or kind == ENCODED
                columns[column] = strings.setdefault(column, _Strings()).encode(values) if is_text else values
            tables.append(pa.table(columns))
        table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise DataError(f"{name} mixes types in a column: {clip(str(problem), 120)}; use one type") from None
    for column, found in strings.items():
        indices = pa.concat_arrays([chunk.indices for chunk in table[column].chunks])
        whole = pa.DictionaryArray.from_arrays(indices, found.values)
        table = table.set_column(table.schema.get_field_index(column), column, whole)
    return table


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches of one schema in groups of half a million rows or 64 MB, since every group costs a hash table."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        if group and batch.schema != group[0].schema:
            yield group
            group = []
        group.append(batch)
        if sum(each.num_rows for each in group) >= 1 << 19 or sum(each.nbytes for each in group) >= 64 << 20:
            yield group
            group = []
    if group:
        yield group


def check_rows(rows: int, name: str, options: ReadOptions) -> None:
    """Refuse more rows than the options allow."""
    if rows > options.max_rows:
        found = f"{name} has more than {options.max_rows:,} rows"
        raise DataError(f"{found}; raise the limit with --max-rows if it is meant to")


def clip(text: str, limit: int = 60) -> str:
    """Return a string on one line and short enough for an error message."""
    line = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else line[: limit - 3] + "..."
