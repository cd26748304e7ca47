"""From a table with any column names to the user, item, time, weight and title columns of a log, or to items."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.readers import read_table
from rankformer.data.readers.base import KNOWN_NAMES, RawTable, clip
from rankformer.data.weights import check_event_weights, event_weights_of
from rankformer.errors import ConfigError, DataError


def read_log(
    path: Path,
    format: str | None,
    names: Mapping[str, str | None],
    header: bool | None = None,
    event_weights: Mapping[str, float] | None = None,
) -> RawTable:
    """Return the log in a file, with the arguments of `Interactions.read`."""
    table = read_table(path, format, [name for name in names.values() if name], header)
    return pick_columns(table, names, event_weights)


def pick_columns(
    raw: RawTable, names: Mapping[str, str | None], event_weights: Mapping[str, float] | None = None
) -> RawTable:
    """Return the log found in a table: its columns named by their roles, ids still raw, times and weights numbers.

    Args:
        raw: the table.
        names: column name per role (user, item, time, weight, title, event); None looks for a known name, and an empty
            string leaves an optional column out. An event column is read only if it is named.
        event_weights: weight of each event. Rows of weight 0 are dropped; a weight column that is named multiplies.
    """
    event = _find(raw, "event", names.get("event") or "")
    if (event is None) != (event_weights is None):
        lacking = "event (--event-column)" if event is None else "event_weights (--event-weights)"
        raise ConfigError(f"an event column and the weights of its events belong together; give {lacking} too")
    if event is not None and names.get("weight") is None:
        names = {**names, "weight": ""}  # a weight column that is there by chance does not multiply
    found = {role: _find(raw, role, names.get(role)) for role in KNOWN_NAMES}
    for role in ("user", "item"):
        if found[role] is None:
            raise DataError(
                f"{raw.name} has no {role} column: found {_listed(raw)}; name it with {role}=... (--{role}-column)"
            )
    columns = {}
    for role, name in found.items():
        if name is not None:
            column = _plain(raw.table[name])
            columns[role] = column.cast(pa.string()) if role == "title" else _CONVERT[role](raw, role, name, column)
    table = pa.table(columns)
    if event is not None and event_weights is not None:
        weights = event_weights_of(raw, event, _plain(raw.table[event]), check_event_weights(event_weights))
        strengths = weights if "weight" not in columns else weights * columns["weight"].to_numpy()
        table = pa.table({**columns, "weight": strengths}).filter(pa.array(weights > 0))
    return replace(raw, table=table)


def join_logs(logs: Sequence[RawTable]) -> pa.Table:
    """Return several logs, one after another, with one type per id column; a column that a log lacks is null there."""
    tables = [log.table for log in logs]
    for position, role in enumerate(("user", "item")):
        columns = [log.table[role] for log in logs]
        # Decided over all parts at once: one odd id in the test part must not give the parts different id types.
        integers = [_canonical_integers(log.table[role]) if log.is_text else log.table[role] for log in logs]
        if all(column is not None for column in integers):
            columns = integers
        for log, column in zip(logs, columns, strict=True):
            if column.type != columns[0].type:
                raise DataError(
                    f"{role} ids are {columns[0].type} in {logs[0].name} and {column.type} in {log.name}; "
                    "store them the same way in every part"
                )
        tables = [table.set_column(position, role, column) for table, column in zip(tables, columns, strict=True)]
    return pa.concat_tables(tables, promote_options="permissive")


def first_titles(titles: pa.ChunkedArray, items: NDArray[np.int32], num_items: int) -> pa.Array:
    """Return the first title known of each item (null where none is), given the title and the item of each row."""
    filled = np.flatnonzero(pc.fill_null(pc.greater(pc.utf8_length(titles), 0), False).to_numpy())
    first_row = np.full(num_items, -1, dtype=np.int64)
    first_row[items[filled[::-1]]] = filled[::-1]  # the last assignment wins: the earliest row with a title
    return pc.take(titles, pa.array(first_row, mask=first_row < 0)).combine_chunks()


def _canonical_integers(strings: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the strings as int64 when each one is exactly how its integer is written, else None.

    `7` and `-7` are; `007`, `+7`, `7.0` and ` 7` are not, and neither is a number beyond 64 bits: turning those
    into integers would change the id.
    """
    try:
        numbers = strings.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(numbers.cast(pa.string()), strings)).as_py()
    return numbers if same or same is None else None


def _find(raw: RawTable, role: str, wanted: str | None) -> str | None:
    columns = raw.table.column_names
    if wanted is None:
        known = KNOWN_NAMES[role]
        if not raw.has_header:
            # Without names the first column is the user and the second the item; the rest has to be stated.
            known = {"user": ("0",), "item": ("1",)}.get(role, ())
        by_lower = {name.strip().lower(): name for name in reversed(columns)}
        wanted = next((by_lower[name] for name in known if name in by_lower), "")
    if wanted == "":
        return None
    if columns.count(wanted) != 1:
        problem = "no column" if wanted not in columns else "more than one column"
        raise DataError(
            f"{raw.name} has {problem} {wanted!r}: found {_listed(raw)}; "
            f"set {role}=... (--{role}-column) to one of them"
        )
    return wanted


def _listed(raw: RawTable) -> str:
    names = ", ".join(repr(clip(name, 40)) for name in raw.table.column_names[:12])
    more = ", ..." if len(raw.table.column_names) > 12 else ""
    kind = "columns" if raw.has_header else "no header, and columns by position"
    return f"{kind} {names}{more}" if names else "no columns"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column without categories and with one kind of string."""
    # Categories (pandas, polars, Parquet) may list values that no row has; only what rows hold counts.
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or str(column.type) == "string_view":
        column = column.cast(pa.string())
    return column


def _ids(raw: RawTable, role: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids without gaps, numbers among them as int64 where that holds them."""
    kind = column.type
    if pa.types.is_floating(kind):
        # An integer column with gaps arrives as floats from pandas; after the gaps are refused it is integers again.
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    absent = pc.is_null(column)
    if pa.types.is_string(kind):
        absent = pc.or_(absent, pc.fill_null(pc.equal(column, ""), True))
    if pc.any(absent).as_py():
        row = pc.index(absent, True).as_py()
        raise DataError(
            f"{raw.name} {raw.locate(row)}: the {role} id is missing (column {name!r}, {pc.sum(absent).as_py():,} such "
            "rows); drop or fill those rows"
        )
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise DataError(f"{raw.name}: {role} column {name!r} has type {kind}; ids are integers or strings")
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        if pa.types.is_integer(kind):
            return column  # uint64 beyond int64 keeps its type
        raise DataError(
            f"{raw.name}: {role} column {name!r} holds fractions; ids are integers or strings, so name the right "
            f"column with {role}=... (--{role}-column)"
        ) from None


def _numbers(raw: RawTable, role: str, name: str, column: pa.ChunkedArray) -> pa.Array:
    """Return a column of times or weights as finite numbers, or name the first row that cannot be one."""
    values = _finite(role, column)
    if values is not None:
        return pa.array(values)
    # The shortest beginning of the column that cannot be used ends in the row at fault.
    row = bisect_left(range(len(column)), True, key=lambda end: _finite(role, column.slice(0, end + 1)) is None)
    value = column[row].as_py()
    found = repr(clip(value)) if isinstance(value, str) else str(value)
    expected = "a finite number or an ISO date" if role == "time" else "a finite number"
    raise DataError(
        f"{raw.name} {raw.locate(row)}: {role} {found} in column {name!r} is not {expected}; fix it, or name another "
        f"column with {role}=... (--{role}-column; an empty name reads none)"
    )


def _finite(role: str, column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Return weights as float32 and times as int64 or float64, or None if one is missing, not finite or no number.

    Times that are dates or ISO strings become microseconds since 1970 (UTC).
    """
    kind = column.type
    targets: list[Any] = [pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    if role == "weight" or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        targets = [pa.float64()]
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        targets = [pa.timestamp("us", getattr(kind, "tz", None))]
    elif not pa.types.is_string(kind):
        targets = [pa.int64()]
    if pa.types.is_string(kind):
        column = pc.utf8_trim_whitespace(column)
    for target in targets:
        is_date = pa.types.is_timestamp(target)
        try:
            numbers = column.cast(target, safe=role == "time" and not is_date)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        values = (numbers.cast(pa.int64()) if is_date else numbers).to_numpy()  # a missing value becomes NaN
        with np.errstate(over="ignore"):
            values = values.astype(np.float32) if role == "weight" else values
        return values if np.isfinite(values).all() else None
    return None


_CONVERT = {"user": _ids, "item": _ids, "time": _numbers, "weight": _numbers}


# Names that the columns of an items file may have besides those of a log.
_ITEM_NAMES = {"item": ("id",), "title": ("name",)}
# Numbers as people write them; 007 is a code and stays a string.
_NUMBER = r"^[+-]?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def pick_items(raw: RawTable, item: str | None, title: str | None) -> tuple[RawTable, pa.Table]:
    """Return the ids of items (`item`, and `title` where there is one), and their other columns as attributes.

    Attributes are booleans, numbers, strings, dates, or lists of strings; what is empty or NaN is null. In text,
    numbers and true/false are recognised.

    Args:
        raw: the table.
        item: name of the id column; None looks for a known name.
        title: name of the title column, in the same way; an empty name reads none.

    Raises:
        DataError: there is no id column, an id is missing or occurs twice, or a column has another type.
    """
    names = raw.table.column_names
    by_lower = {name.strip().lower(): name for name in reversed(names)}
    found: dict[str, str] = {}
    for role, wanted in (("item", item), ("title", title)):
        other = next((by_lower[name] for name in _ITEM_NAMES[role] if name in by_lower), None)
        column = _find(raw, role, wanted) or (other if wanted is None else None)
        if column is not None:
            found[role] = column
    if "item" not in found:
        raise DataError(f"{raw.name} has no item column: found {_listed(raw)}; call it item_id, or set item=...")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{raw.name} has two columns {twice!r}; an attribute needs a name of its own")
    ids = _ids(raw, "item", found["item"], _plain(raw.table[found["item"]]))
    repeated = np.flatnonzero(~np.isin(np.arange(len(ids)), np.unique(_codes(ids), return_index=True)[1]))
    if len(repeated):
        row = int(repeated[0])
        raise DataError(f"{raw.name} {raw.locate(row)}: item {ids[row].as_py()!r} occurs twice; keep one row per item")
    columns = {"item": ids}
    if "title" in found:
        columns["title"] = _without_empty(_plain(raw.table[found["title"]]).cast(pa.string()))
    others = [name for name in names if name not in found.values()]
    return replace(raw, table=pa.table(columns)), pa.table({name: _attribute(raw, name) for name in others})


def _codes(values: pa.ChunkedArray) -> NDArray[Any]:
    codes: NDArray[Any] = values.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _without_empty(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(strings, ""), pa.scalar(None, pa.string()), strings)


def _attribute(raw: RawTable, name: str) -> pa.ChunkedArray:
    """Return a column as one of the types that attributes have."""
    column = _plain(raw.table[name])
    kind = column.type
    if pa.types.is_string(kind):
        column = _without_empty(column)
        return _recognised(column) if raw.is_text else column
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    if pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return column
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and not pa.types.is_nested(kind.value_type):
        return column.cast(pa.list_(pa.string()))
    raise DataError(
        f"{raw.name}: column {name!r} has type {kind}; attributes are booleans, numbers, strings, dates or lists of "
        "strings, so drop it or convert it"
    )


def _recognised(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text as booleans or numbers where every value is written as one."""
    if strings.null_count == len(strings):
        return strings
    words = pc.utf8_lower(strings)
    if pc.all(pc.is_in(words, pa.array(["true", "false", None]))).as_py():
        return pc.equal(words, "true")
    integers = _canonical_integers(strings)
    if integers is not None:
        return integers
    return strings.cast(pa.float64()) if pc.all(pc.match_substring_regex(strings, _NUMBER)).as_py() else strings
