"""Ids, titles and vectors as PostgreSQL text: column types, and the text form of COPY.

A COPY line is a row: a tab between columns, `\\N` for no value, backslash escapes.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import DataError
from rankformer.export.contents import VectorTable

END = "\\.\n"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}  # the backslash first: the others bring new ones
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r"}
_NUMBERS_AT_ONCE = 2**20
_ROWS_AT_ONCE = 10_000

# SQL type of an id column -> the Python value of a text (which can be cast to the Arrow type it came from), and the
# Arrow types kept in it.
_TYPES: dict[str, tuple[Callable[[str], Any], tuple[pa.DataType, ...]]] = {
    "text": (str, (pa.string(), pa.large_string())),
    "boolean": (lambda text: text == "true", (pa.bool_(),)),
    "smallint": (int, (pa.int8(), pa.uint8(), pa.int16())),
    "integer": (int, (pa.uint16(), pa.int32())),
    "bigint": (int, (pa.uint32(), pa.int64())),
    "numeric": (Decimal, (pa.uint64(),)),  # and decimals of every precision
    "real": (float, (pa.float32(),)),
    "double precision": (float, (pa.float64(),)),
    "date": (date.fromisoformat, (pa.date32(), pa.date64())),
    "time": (time.fromisoformat, tuple(map(pa.time32, ("s", "ms"))) + tuple(map(pa.time64, ("us", "ns")))),
    "timestamp": (datetime.fromisoformat, tuple(map(pa.timestamp, ("s", "ms", "us", "ns")))),
    "timestamptz": (datetime.fromisoformat, ()),  # timestamps of every zone
    "bytea": (lambda text: bytes.fromhex(text.removeprefix("\\x")), (pa.binary(), pa.large_binary())),
}


def sql_type_of(kind: pa.DataType) -> str:
    """Return the PostgreSQL type of a column for ids of an Arrow type.

    Raises:
        DataError: there is none that keeps every value.
    """
    for sql_type, (_, kinds) in _TYPES.items():
        if kind in kinds:
            return sql_type
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    if pa.types.is_decimal(kind):
        return "numeric"
    raise DataError(f"ids of type {kind} have no PostgreSQL type here; export to parquet, which keeps any type")


def format_ids(ids: pa.Array) -> pa.Array:
    """Return ids as strings that PostgreSQL reads as values of their SQL type.

    Raises:
        DataError: a time is finer than the microseconds that PostgreSQL keeps.
    """
    kind = ids.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([f"\\x{value.hex()}" for value in ids.to_pylist()])
    try:
        if pa.types.is_timestamp(kind):
            ids = ids.cast(pa.timestamp("us", None if kind.tz is None else "UTC"))
        elif pa.types.is_time64(kind):
            ids = ids.cast(pa.time64("us"))
    except pa.ArrowInvalid as error:
        raise DataError(f"an id of type {kind} is finer than PostgreSQL's microseconds: {error}") from error
    return ids.cast(pa.string())


def parse_id(text: str, sql_type: str) -> Any:
    """Return the Python value that PostgreSQL reads from a text as a value of a type."""
    return _TYPES[sql_type][0](text)


def format_rows(table: VectorTable) -> Iterator[str]:
    """Yield the rows of a table as lines of COPY's text form, many lines in one string.

    Raises:
        DataError: an id or title holds a NUL character, or an id cannot be kept.
    """
    rows = max(1, _NUMBERS_AT_ONCE // table.vectors.shape[1])
    for start in range(0, len(table.ids), rows):
        columns = [escape(format_ids(table.ids.slice(start, rows)), "id")]
        if table.titles is not None:
            columns.append(escape(table.titles.slice(start, rows).cast(pa.string()), "title"))
        columns.append(format_vectors(table.vectors[start : start + rows]))
        yield "\n".join(pc.binary_join_element_wise(*columns, "\t").to_pylist()) + "\n"


def parse_rows(lines: Iterator[str], sql_type: str) -> VectorTable:
    """Return the table that lines of COPY data stand for: id, title if there are three columns, vector."""
    ids, titles, vectors = [], [], []
    while block := [line.removesuffix("\n").split("\t") for line in islice(lines, _ROWS_AT_ONCE)]:
        ids += [parse_id(unescape(row[0]) or "", sql_type) for row in block]
        titles += [unescape(row[1]) for row in block if len(row) == 3]
        vectors.append(parse_vectors([row[-1] for row in block], block[0][-1].count(",") + 1))
    return VectorTable(pa.array(ids), np.concatenate(vectors), pa.array(titles, pa.string()) if titles else None)


def escape(strings: pa.Array, what: str) -> pa.Array:
    """Return strings as COPY wants them, nulls as `\\N`; a NUL character, which PostgreSQL cannot hold, is refused."""
    forbidden = pc.index(pc.match_substring(strings, "\0"), True).as_py()
    if forbidden >= 0:
        raise DataError(
            f"the {what} {strings[forbidden].as_py()!r} holds a NUL character, which PostgreSQL strings cannot; "
            "take it out of the data, or export to parquet"
        )
    for letter, escaped in _ESCAPES.items():
        strings = pc.replace_substring(strings, letter, escaped)
    return strings.fill_null("\\N")


def unescape(field: str) -> str | None:
    """Return the string that a field stands for, None for no value."""
    if field == "\\N":
        return None
    return re.sub(r"\\(.)", lambda found: _MEANINGS.get(found[1], found[1]), field)


def format_vectors(vectors: NDArray[np.float32]) -> pa.Array:
    """Return each vector as `[0.5,-1,...]`, every number with the fewest digits that give it back exactly."""
    count, dimension = vectors.shape
    numbers = pa.array(vectors.reshape(-1)).cast(pa.string())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * dimension)
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ",")
    return pc.binary_join_element_wise("[", joined, "]", "")


def parse_vectors(fields: list[str], dimension: int) -> NDArray[np.float32]:
    """Return the numbers of fields that `format_vectors` wrote, (len(fields), dimension)."""
    numbers = pc.split_pattern(pc.utf8_slice_codeunits(pa.array(fields, pa.string()), 1, -1), ",").flatten()
    parsed: NDArray[np.float32] = numbers.cast(pa.float32()).to_numpy(zero_copy_only=False)
    return parsed.reshape(-1, dimension)
