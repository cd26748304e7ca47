"""Raw ids as SQL: the column type, how a value is spelt, and how the spelling is read."""

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from rankformer.errors import DataError

_SQL_TYPES = {
    pa.string(): "text",
    pa.large_string(): "text",
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.uint8(): "smallint",
    pa.int16(): "smallint",
    pa.uint16(): "integer",
    pa.int32(): "integer",
    pa.uint32(): "bigint",
    pa.int64(): "bigint",
    pa.uint64(): "numeric",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
}
# By SQL type, the Python value that a spelling stands for; any of them can be cast to the Arrow type it came from.
PARSERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "boolean": lambda text: text == "true",
    "smallint": int,
    "integer": int,
    "bigint": int,
    "numeric": Decimal,
    "real": float,
    "double precision": float,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def sql_type_of(kind: pa.DataType) -> str:
    """Return the PostgreSQL type of a column for ids of an Arrow type.

    Raises:
        DataError: there is none that keeps every value.
    """
    if kind in _SQL_TYPES:
        return _SQL_TYPES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_decimal(kind):
        return "numeric"
    raise DataError(f"ids of type {kind} have no PostgreSQL type here; export to parquet, which keeps any type")


def spell(ids: pa.Array) -> pa.Array:
    """Return ids as texts that PostgreSQL reads as values of their SQL type.

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
