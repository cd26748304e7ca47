"""Times and weights as numbers, whatever they are written as."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import DataError

# How a column is read: a function that returns its numbers, or None if one of them cannot be read.
Parser = Callable[[pa.ChunkedArray], "NDArray[Any] | None"]

_CLOCKS = ("", " %H:%M", " %H:%M:%S")
_DATES = ("%Y/%m/%d", "%d.%m.%Y", "%Y.%m.%d", "%b %d, %Y", "%d %b %Y", "%B %d, %Y", "%d %B %Y")
# Days and months that stand either way round; both are tried, and a column that fits both has to be stated.
_EITHER_WAY = (("%d/%m/%Y", "%m/%d/%Y"), ("%d-%m-%Y", "%m-%d-%Y"))
_LOG_FORMATS = ("%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %Z", "%a %b %d %H:%M:%S %Y", "%m/%d/%Y %I:%M:%S %p")
# Seconds, milliseconds, microseconds and nanoseconds since 1970 do not overlap from 1973 on.
_UNITS = ((1e8, 1.0), (1e11, 1e3), (1e14, 1e6), (1e17, 1e9))
_SAMPLE = 1000
_MOST_BAD = 100_000


def parse_numbers(role: str, column: pa.ChunkedArray, time_format: str | None = None) -> NDArray[Any] | None:
    """Return weights as float32 and times as int64 or float64, or None if one is missing, not finite or no number.

    Times that are dates, in ISO form or another common one, become microseconds since 1970 (UTC).

    Raises:
        DataError: days and months could stand either way round.
    """
    column = _trimmed(column)
    for parse in _parsers(role, column.type, time_format):
        if (values := parse(column)) is not None:
            return values
    return None


def bad_numbers(role: str, column: pa.ChunkedArray, time_format: str | None = None) -> list[int]:
    """Return the rows that cannot be read in the way in which most of the first rows can, in ascending order."""
    column = _trimmed(column)
    sample = [column.slice(row, 1) for row in range(min(_SAMPLE, len(column)))]
    parsers = _parsers(role, column.type, time_format)
    best = max(parsers, key=lambda parse: sum(parse(value) is not None for value in sample))
    bad: list[int] = []
    pieces = [(0, len(column))]
    while pieces:  # halves of what cannot be read, the left one first
        begin, size = pieces.pop()
        if best(column.slice(begin, size)) is not None:
            continue
        if size == 1:
            bad.append(begin)
            if len(bad) > _MOST_BAD:
                raise DataError(f"more than {_MOST_BAD:,} rows have no usable {role}; name the right --{role}-column")
        else:
            pieces += [(begin + size // 2, size - size // 2), (begin, size // 2)]
    return bad


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_trim_whitespace(column) if pa.types.is_string(column.type) else column


def _parsers(role: str, kind: pa.DataType, time_format: str | None) -> list[Parser]:
    """Return the ways in which a column of a type can be read, the likeliest first."""
    if role == "weight":
        return [_cast(pa.float64(), np.float32)] + ([_decimal_comma] if pa.types.is_string(kind) else [])
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return [_cast(pa.float64())]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return [_cast(pa.timestamp("us", getattr(kind, "tz", None)))]
    if not pa.types.is_string(kind):
        return [_cast(pa.int64())]
    if time_format is not None:
        return [_strptime(time_format)]
    numbers = [_cast(pa.int64()), _cast(pa.float64())]
    iso = [_cast(pa.timestamp("us")), _cast(pa.timestamp("us", "UTC"))]
    common = [_strptime(date + clock) for date in _DATES for clock in _CLOCKS]
    either = [_day_or_month_first(*pair, clock) for pair in _EITHER_WAY for clock in _CLOCKS]
    return [*numbers, *iso, *common, *either, *map(_strptime, _LOG_FORMATS)]


def _cast(target: pa.DataType, kept: Any = None) -> Parser:
    """Return a parser for what Arrow can cast to a type; `kept` is the type of the result, if it is another."""
    is_date = pa.types.is_timestamp(target)

    def parse(column: pa.ChunkedArray) -> NDArray[Any] | None:
        try:
            return _finite(column.cast(target, safe=kept is None and not is_date), kept)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    return parse


def _strptime(format: str) -> Parser:
    def parse(column: pa.ChunkedArray) -> NDArray[Any] | None:
        try:
            return _finite(pc.strptime(column, format=format, unit="us", error_is_null=True))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    return parse


def _day_or_month_first(day_first: str, month_first: str, clock: str) -> Parser:
    def parse(column: pa.ChunkedArray) -> NDArray[Any] | None:
        days, months = (_strptime(format + clock)(column) for format in (day_first, month_first))
        if days is None or months is None:
            return months if days is None else days
        if len(column) > 1 and not np.array_equal(days, months):
            raise DataError(
                f"times such as {column[0].as_py()!r} may begin with the day or the month; state which with "
                f"time_format=... (--time-format '{day_first}{clock}' or '{month_first}{clock}')"
            )
        return days

    return parse


def _decimal_comma(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Return numbers such as `3,5`, as written in much of Europe; a comma between thousands is not accepted."""
    if not pc.all(pc.fill_null(pc.match_substring_regex(column, r"^[+-]?\d+(,\d{1,2})?$"), False)).as_py():
        return None
    return _cast(pa.float64(), np.float32)(pc.replace_substring(column, ",", "."))


def _finite(numbers: pa.ChunkedArray, kept: Any = None) -> NDArray[Any] | None:
    """Return numbers, or times as microseconds; None if one is missing or not finite."""
    if pa.types.is_timestamp(numbers.type):
        numbers = numbers.cast(pa.int64())
    values = numbers.to_numpy()  # a missing value becomes NaN
    with np.errstate(over="ignore"):
        values = values if kept is None else values.astype(kept)
    return values if np.isfinite(values).all() else None


def per_second(newest: float) -> float | None:
    """Return how many units of times since 1970 make a second, which the size of the newest tells; None for others."""
    return next((scale for least, scale in reversed(_UNITS) if newest >= least), None)
