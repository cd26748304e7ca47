"""Tables as they were read, and the numbers in them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import DataError


@dataclass(frozen=True)
class RawTable:
    """A table as read, before anything is known about its columns.

    Attributes:
        table: the columns; every one is text when `is_text`.
        name: what to call the table in an error, usually the file name.
        locate: where a row is for a person, such as "line 7" (rows count from 0).
        is_text: whether values came as text, so that numbers among them have to be recognised.
        has_header: whether the column names are the data's own and not made-up positions.
    """

    table: pa.Table
    name: str = "table"
    locate: Callable[[int], str] = lambda row: f"row {row + 1}"
    is_text: bool = False
    has_header: bool = True


def clip(text: str, limit: int = 60) -> str:
    """Return a text on one line and short enough for an error message."""
    line = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column without categories and with one kind of text."""
    # Categories (pandas, polars, Parquet) may list values that no row has; only what rows hold counts.
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or str(column.type) == "string_view":
        column = column.cast(pa.string())
    return column


def weights_of(raw: RawTable, name: str) -> NDArray[np.float32]:
    """Return a column as finite float32 numbers."""
    column = plain(raw.table[name])
    values = _as_floats(column)
    if values is None:
        row, text = _first_that_is_no_number(column)
        raise DataError(
            f"{raw.name} {raw.locate(row)}: weight {clip(text)!r} in column {name!r} is not a number; mend it, or name "
            "another column with weight=... (--weight-column; an empty name reads none)"
        )
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights))[0])
        found = column[row].as_py()
        raise DataError(
            f"{raw.name} {raw.locate(row)}: weight {found!r} in column {name!r} is missing or not finite; "
            "drop or mend such rows"
        )
    return weights


def _as_floats(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
    try:
        numbers = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    result: NDArray[np.float64] = numbers.to_numpy()
    return result


def _first_that_is_no_number(column: pa.ChunkedArray) -> tuple[int, str]:
    for row, value in enumerate(column):
        if value.is_valid and _as_floats(pa.chunked_array([[value.as_py()]], type=column.type)) is None:
            return row, str(value.as_py())
    return 0, str(column.type)


def times_of(raw: RawTable, name: str) -> NDArray[Any]:
    """Return a column as int64 or float64 numbers; dates and ISO texts become microseconds since 1970 (UTC)."""
    column = plain(raw.table[name])
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(f"{raw.name} {raw.locate(row)}: the time is missing (column {name!r}); drop or fill those rows")
    numbers = _time_numbers(column)
    if numbers is not None and not (numbers.dtype.kind == "f" and not np.isfinite(numbers).all()):
        return numbers
    row = _first_bad_time(column)
    raise DataError(
        f"{raw.name} {raw.locate(row)}: time {clip(str(column[row].as_py()))!r} in column {name!r} is neither a number "
        "nor an ISO date; mend it, or name another column with time=... (--time-column; an empty name reads none)"
    )


def _time_numbers(column: pa.ChunkedArray) -> NDArray[Any] | None:
    if pa.types.is_string(column.type):
        column = pc.utf8_trim_whitespace(column)
    kind = column.type
    tries: list[Any] = [pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        tries = [pa.timestamp("us", getattr(kind, "tz", None))]
    elif not pa.types.is_string(kind):
        tries = [pa.float64()] if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else [pa.int64()]
    for target in tries:
        try:
            cast = column.cast(target, safe=not pa.types.is_timestamp(target))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        numbers: NDArray[Any] = (cast.cast(pa.int64()) if pa.types.is_timestamp(target) else cast).to_numpy()
        return numbers
    return None


def _first_bad_time(column: pa.ChunkedArray) -> int:
    for row in range(len(column)):
        numbers = _time_numbers(column.slice(row, 1))
        if numbers is None or (numbers.dtype.kind == "f" and not np.isfinite(numbers).all()):
            return row
    return 0  # each is readable alone, but they mix kinds
