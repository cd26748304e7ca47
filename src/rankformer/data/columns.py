"""From a table with any column names to the user, item, time, weight and title columns of a log, or to items."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.readers.base import ENCODED, SHOWN_BAD_ROWS, RawTable, clip
from rankformer.data.readers.options import KNOWN_NAMES
from rankformer.data.values import bad_numbers, parse_numbers
from rankformer.data.weights import OTHER, event_weights_of
from rankformer.errors import ConfigError, DataError


def pick_columns(raw: RawTable, names: Mapping[str, str | None]) -> RawTable:
    """Return the log found in a table: its columns named by their roles, ids still raw, times and weights numbers.

    Args:
        raw: the table.
        names: column name per role (user, item, time, weight, title, event); None looks for a known name, and an empty
            string leaves an optional column out. An event column is read only if it is named.

    With an event column, the options of the table have the weight of each event. Rows of weight 0 are dropped; a weight
    column that is named multiplies.
    """
    event, weights = find_column(raw, "event", names.get("event") or ""), raw.options.event_weights
    if (event is None) != (weights is None):
        lacking = "event (--event-column)" if event is None else "event_weights (--event-weights)"
        raise ConfigError(f"an event column and the weights of its events belong together; give {lacking} too")
    if event is not None and names.get("weight") is None:
        names = {**names, "weight": ""}  # a weight column that is there by chance does not multiply
    found = {role: find_column(raw, role, names.get(role)) for role in KNOWN_NAMES}
    for role in ("user", "item"):
        if found[role] is None:
            raise DataError(
                f"{raw.name} has no {role} column: found {_listed(raw)}; name it with {role}=... (--{role}-column)"
                + (", or state what separates columns with --delimiter" if raw.is_text and _is_one(raw) else "")
            )
    if found["user"] == found["item"]:
        raise DataError(f"{raw.name}: column {found['user']!r} is named as user and as item; name two columns")
    used = {role: name for role, name in (*found.items(), ("event", event)) if name is not None}
    plain = {role: _plain(raw.table[name], role not in ("time", "weight")) for role, name in used.items()}
    raw = replace(raw, table=pa.table(plain))
    if raw.options.on_bad_row == "skip":
        raw = _without_bad_rows(raw, used)
    columns = {
        role: _CONVERT[role](raw, role, name, raw.table[role]) for role, name in used.items() if role in _CONVERT
    }
    table = pa.table(columns)
    if event is not None and weights is not None:
        values = event_weights_of(raw, event, raw.table["event"], weights)
        strengths = values if "weight" not in columns else values * columns["weight"].to_numpy()
        table = _filtered(pa.table({**columns, "weight": strengths}), values > 0)
    return replace(raw, table=table)


def _is_one(raw: RawTable) -> bool:
    return len(raw.table.column_names) == 1


def _without_bad_rows(raw: RawTable, names: Mapping[str, str]) -> RawTable:
    """Return the table without rows that lack an id or event, or whose time or weight cannot be read; count them."""
    good = np.ones(raw.table.num_rows, dtype=np.bool_)
    for role, name in names.items():
        column = raw.table[role]
        if role in ("user", "item"):
            bad, reason = np.flatnonzero(_absent(column)), f"without {'an' if role == 'item' else 'a'} {role} id"
        elif role == "event" and OTHER not in (raw.options.event_weights or {}):
            bad, reason = np.flatnonzero(_absent(column)), "without an event"
        elif role in ("time", "weight"):
            column = _decoded(column)
            bad, reason = np.asarray(bad_numbers(role, column, raw.options.time_format), np.int64), f"without a {role}"
        else:
            continue
        new = bad[good[bad]]
        for row in new[: SHOWN_BAD_ROWS - len(raw.bad.examples)].tolist():
            found = f"{role} {clip(str(column[row].as_py()))!r} in column {name!r}"
            raw.bad.add(reason, f"{raw.name} {raw.locate(row)}: {found}", 0)
        raw.bad.add(reason, count=len(new))
        good[bad] = False
    raw.bad.counts += {}  # without those that are zero
    if not good.any():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in raw.bad.counts.items())
        raise DataError(f"{raw.name} has no row that can be used ({reasons}); check the columns and their format")
    if good.all():
        return raw
    rows = np.flatnonzero(good)
    return replace(raw, table=_filtered(raw.table, good), locate=lambda row: raw.locate(int(rows[row])))


def _filtered(table: pa.Table, good: NDArray[np.bool_]) -> pa.Table:
    """Return some of the rows, encoded anew: a string that only others had must not decide what ids are."""
    if good.all():
        return table
    kept = table.filter(pa.array(good))
    return pa.table({role: _plain(_decoded(kept[role]), kept[role].type == ENCODED) for role in kept.column_names})


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
                first, other = (str(getattr(kind, "value_type", kind)) for kind in (columns[0].type, column.type))
                raise DataError(
                    f"{role} ids are {first} in {logs[0].name} and {other} in {log.name}; "
                    "store them the same way in every part"
                )
        tables = [table.set_column(position, role, column) for table, column in zip(tables, columns, strict=True)]
    return pa.concat_tables(tables, promote_options="permissive")


def first_titles(titles: pa.ChunkedArray, items: NDArray[np.int32], num_items: int) -> pa.Array:
    """Return the first title known of each item (null where none is), given the title and the item of each row."""
    filled = np.flatnonzero(~_absent(titles))
    first_row = np.full(num_items, -1, dtype=np.int64)
    first_row[items[filled[::-1]]] = filled[::-1]  # the last assignment wins: the earliest row with a title
    return _decoded(pc.take(titles, pa.array(first_row, mask=first_row < 0))).combine_chunks()


def extended_titles(
    known: pa.Array | None, new: pa.Array | None, items_of: NDArray[np.int64], num_items: int
) -> pa.Array | None:
    """Return the known titles, which come first, and those of new items, given the index of each item of the new."""
    if new is None and known is None:
        return None
    first = np.full(num_items, -1)
    first[items_of] = np.arange(len(items_of))
    found = pa.nulls(len(items_of), pa.string()) if new is None else new.cast(pa.string())
    titles = found.take(pa.array(first, mask=first < 0))
    if known is None:
        return titles
    padding = pa.nulls(num_items - len(known), pa.string())
    return pc.coalesce(pa.concat_arrays([known.cast(pa.string()), padding]), titles)


def _canonical_integers(strings: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the strings as int64 when each one is exactly how its integer is written, else None.

    `7` and `-7` are; `007`, `+7`, `7.0` and ` 7` are not, and neither is a number beyond 64 bits: turning those
    into integers would change the id.
    """
    chunks = []
    for chunk in strings.chunks:  # each distinct string once
        try:
            numbers = chunk.dictionary.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
        if not numbers.cast(pa.string()).equals(chunk.dictionary):
            return None
        chunks.append(numbers.take(chunk.indices))
    return pa.chunked_array(chunks, pa.int64())


def find_column(raw: RawTable, role: str, wanted: str | None) -> str | None:
    """Return the name of the column that has a role: the one wanted, or one with a known name; None without one."""
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
        problem, advice = "no column", f"set {role}=... (--{role}-column) to one of them"
        if wanted in columns:
            problem, advice = "more than one column", "rename one of them"
        raise DataError(f"{raw.name} has {problem} {wanted!r}: found {_listed(raw)}; {advice}")
    return wanted


def _listed(raw: RawTable) -> str:
    names = ", ".join(repr(clip(name, 40)) for name in raw.table.column_names[:12])
    more = ", ..." if len(raw.table.column_names) > 12 else ""
    kind = "columns" if raw.has_header else "no header, and columns by position"
    return f"{kind} {names}{more}" if names else "no columns"


def _plain(column: pa.ChunkedArray, encoded: bool) -> pa.ChunkedArray:
    """Return the column without categories; if `encoded`, strings in one kind of them, each distinct one once."""
    # Categories (pandas, polars, Parquet) may list values that no row has; only what rows hold counts.
    if pa.types.is_dictionary(column.type) and column.type != ENCODED:
        column = column.cast(column.type.value_type)
    if pa.types.is_large_string(column.type) or str(column.type) == "string_view":
        column = column.cast(pa.string())
    return column.dictionary_encode() if encoded and pa.types.is_string(column.type) else column


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if column.type == ENCODED else column


def _absent(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return which rows have no value, an empty string or NaN, (rows,)."""
    if column.type == ENCODED:
        absent = [np.zeros(0, dtype=np.bool_)]
        for chunk in column.chunks:
            empty = pc.fill_null(pc.equal(chunk.dictionary, ""), True).to_numpy(zero_copy_only=False)
            absent.append(np.append(empty, True)[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
        return np.concatenate(absent)
    found = pc.is_null(column, nan_is_null=True).to_numpy()
    return np.asarray(found, dtype=np.bool_)


def _ids(raw: RawTable, role: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids without gaps, numbers among them as int64 where that holds them."""
    kind = column.type
    # An integer column with gaps arrives as floats from pandas; after the gaps are refused it is integers again.
    absent = np.flatnonzero(_absent(column))
    if len(absent):
        raise DataError(
            f"{raw.name} {raw.locate(int(absent[0]))}: the {role} id is missing (column {name!r}, {len(absent):,} such "
            "rows); drop or fill those rows, or leave them out with --on-bad-row skip"
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
    column, time_format = _decoded(column), raw.options.time_format
    try:
        values = parse_numbers(role, column, time_format)
    except DataError as problem:
        raise DataError(f"{raw.name}: {problem}") from None
    if values is not None:
        return pa.array(values)

    def unusable(end: int) -> bool:
        try:
            return parse_numbers(role, column.slice(0, end + 1), time_format) is None
        except DataError:
            return False  # a date that could be read in two ways can be read

    # The shortest beginning of the column that cannot be used ends in the row at fault.
    row = bisect_left(range(len(column)), True, key=unusable)
    value = column[row].as_py()
    found = repr(clip(value)) if isinstance(value, str) else str(value)
    expected = f"a time such as {time_format}" if time_format else "a finite number or an ISO date"
    raise DataError(
        f"{raw.name} {raw.locate(row)}: {role} {found} in column {name!r} is not "
        f"{expected if role == 'time' else 'a finite number'}; fix it, or name another column with {role}=... "
        f"(--{role}-column; an empty name reads none)"
        + (", or say how times are written with --time-format" if role == "time" and not time_format else "")
    )


def _titles(raw: RawTable, role: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return titles as strings."""
    if column.type == ENCODED:
        return column
    try:
        return column.cast(pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"{raw.name}: {role} column {name!r} has type {column.type}, which is not text in UTF-8; name another "
            f"column with {role}=... (--{role}-column; an empty name reads none)"
        ) from None


_CONVERT = {"user": _ids, "item": _ids, "time": _numbers, "weight": _numbers, "title": _titles}


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
        column = find_column(raw, role, wanted) or (other if wanted is None else None)
        if column is not None:
            found[role] = column
    if "item" not in found:
        raise DataError(f"{raw.name} has no item column: found {_listed(raw)}; call it item_id, or set item=...")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{raw.name} has two columns {twice!r}; an attribute needs a name of its own")
    ids = _decoded(_ids(raw, "item", found["item"], _plain(raw.table[found["item"]], True)))
    repeated = np.flatnonzero(~np.isin(np.arange(len(ids)), np.unique(_codes(ids), return_index=True)[1]))
    if len(repeated):
        row = int(repeated[0])
        raise DataError(f"{raw.name} {raw.locate(row)}: item {ids[row].as_py()!r} occurs twice; keep one row per item")
    columns = {"item": ids}
    if "title" in found:
        titles = _titles(raw, "title", found["title"], _plain(raw.table[found["title"]], True))
        columns["title"] = _without_empty(_decoded(titles))
    others = [name for name in names if name not in found.values()]
    return replace(raw, table=pa.table(columns)), pa.table({name: _attribute(raw, name) for name in others})


def _codes(values: pa.ChunkedArray) -> NDArray[Any]:
    codes: NDArray[Any] = values.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return codes


def _without_empty(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(strings, ""), pa.scalar(None, pa.string()), strings)


def _attribute(raw: RawTable, name: str) -> pa.ChunkedArray:
    """Return a column as one of the types that attributes have."""
    column = _decoded(_plain(raw.table[name], False))
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
    integers = _canonical_integers(strings.dictionary_encode())
    if integers is not None:
        return integers
    return strings.cast(pa.float64()) if pc.all(pc.match_substring_regex(strings, _NUMBER)).as_py() else strings
