"""From a table with any column names to the user, item, time, weight and title columns of a log."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.data.tables import RawTable, clip, plain, times_of, weights_of
from rankformer.errors import DataError

# The names tried, in this order and in any case, when the caller names no column.
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "uid", "user_idx", "customer", "customer_id", "visitor_id", "visitorid"),
    "item": (
        "item",
        "item_id",
        "itemid",
        "iid",
        "item_idx",
        "product",
        "product_id",
        "productid",
        "sku",
        "asin",
        "movie_id",
        "movieid",
        "business_id",
        "article_id",
        "book_id",
        "track_id",
    ),
    "time": ("time", "timestamp", "ts", "datetime", "date", "event_time", "created_at"),
    "weight": ("weight", "rating", "strength", "count", "plays"),
    "title": ("title", "item_title", "item_name"),
}


@dataclass(frozen=True)
class LogColumns:
    """The columns of one log: ids still raw, times and weights already numbers."""

    source: RawTable
    user: pa.ChunkedArray
    item: pa.ChunkedArray
    time: NDArray[Any] | None
    weight: NDArray[np.float32] | None
    title: pa.ChunkedArray | None


@dataclass(frozen=True)
class EncodedLog:
    """Ids as indices over shared maps; field names are those of `Interactions`."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    user_ids: IdMap
    item_ids: IdMap
    times: NDArray[Any] | None
    weights: NDArray[np.float32] | None
    item_titles: pa.Array | None


def may_be_wanted(name: str, named: list[str]) -> bool:
    """Return whether a column could be one of a log's: others need not be read."""
    return name in named or any(name.strip().lower() in known for known in KNOWN_NAMES.values())


def with_unread(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the table with an empty stand-in for each column left unread, so that errors can list all names."""
    read = set(table.column_names)
    columns = [table[name] if name in read else pa.nulls(table.num_rows) for name in names]
    return pa.table(columns, names=names)


def pick_columns(raw: RawTable, names: dict[str, str | None]) -> LogColumns:
    """Return the columns of a log found in a table.

    Args:
        raw: the table.
        names: column name per role (user, item, time, weight, title); None looks for a known name, and an empty
            text leaves an optional column out.
    """
    user, item = _find(raw, "user", names.get("user")), _find(raw, "item", names.get("item"))
    if user is None or item is None:
        missing = "user" if user is None else "item"
        raise DataError(
            f"{raw.name} has no {missing} column: found {_listed(raw)}; name it with {missing}=... (--{missing}-column)"
        )
    time, weight, title = (_find(raw, role, names.get(role)) for role in ("time", "weight", "title"))
    return LogColumns(
        source=raw,
        user=_raw_ids(raw, "user", user),
        item=_raw_ids(raw, "item", item),
        time=None if time is None else times_of(raw, time),
        weight=None if weight is None else weights_of(raw, weight),
        title=None if title is None else plain(raw.table[title]).cast(pa.string()),
    )


def encode_logs(logs: list[LogColumns]) -> EncodedLog:
    """Return several logs, one after another, over id maps that hold the ids of all of them."""
    user_ids, users = IdMap.encode(_unified_ids(logs, "user"))
    item_ids, items = IdMap.encode(_unified_ids(logs, "item"))
    times = [log.time for log in logs if log.time is not None]
    weights = [log.weight for log in logs if log.weight is not None]
    return EncodedLog(
        users=users,
        items=items,
        user_ids=user_ids,
        item_ids=item_ids,
        times=np.concatenate(times) if len(times) == len(logs) else None,
        weights=np.concatenate(weights) if len(weights) == len(logs) else None,
        item_titles=_titles_by_item(logs, items, len(item_ids)),
    )


def canonical_integers(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the texts as int64 when each one is exactly how its integer is written, else None.

    `7` and `-7` are; `007`, `+7`, `7.0` and ` 7` are not, and neither is a number beyond 64 bits: turning those
    into integers would change the id.
    """
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    same = pc.all(pc.equal(numbers.cast(pa.string()), texts)).as_py()
    return numbers if same or same is None else None


def _find(raw: RawTable, role: str, wanted: str | None) -> str | None:
    columns = raw.table.column_names
    if wanted == "":
        return None
    if wanted is None:
        wanted_names = KNOWN_NAMES[role]
        if not raw.has_header:
            # Without names the first column is the user and the second the item; the rest has to be stated.
            wanted_names = {"user": ("0",), "item": ("1",)}.get(role, ())
        by_lower = {name.strip().lower(): name for name in reversed(columns)}
        return next((by_lower[name] for name in wanted_names if name in by_lower), None)
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


def _raw_ids(raw: RawTable, role: str, name: str) -> pa.ChunkedArray:
    column = plain(raw.table[name])
    if pa.types.is_floating(column.type):
        # A whole-number column with gaps arrives as floats from pandas; after the gaps are refused it is whole again.
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    absent = pc.is_null(column)
    if pa.types.is_string(column.type):
        absent = pc.or_(absent, pc.fill_null(pc.equal(column, ""), True))
    if pc.any(absent).as_py():
        row = pc.index(absent, True).as_py()
        count = pc.sum(absent).as_py()
        raise DataError(
            f"{raw.name} {raw.locate(row)}: the {role} id is missing (column {name!r}, {count:,} such rows); "
            "drop or fill those rows"
        )
    return _checked_id_type(raw, role, name, column)


def _checked_id_type(raw: RawTable, role: str, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            if pa.types.is_integer(kind):
                return column  # uint64 beyond int64 keeps its type
            raise DataError(
                f"{raw.name}: {role} column {name!r} holds fractions; ids are whole numbers or text, so name the "
                f"right column with {role}=... (--{role}-column)"
            ) from None
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise DataError(f"{raw.name}: {role} column {name!r} has type {kind}; ids are whole numbers or text")
    return column


def _unified_ids(logs: list[LogColumns], role: str) -> pa.ChunkedArray:
    columns: list[pa.ChunkedArray] = [getattr(log, role) for log in logs]
    # Decided over all parts at once: one odd id in the test part must not give the parts different id types.
    numbers = [
        canonical_integers(column) if log.source.is_text else column for log, column in zip(logs, columns, strict=True)
    ]
    if all(column is not None for column in numbers):
        columns = numbers
    for log, column in zip(logs[1:], columns[1:], strict=True):
        if column.type != columns[0].type:
            raise DataError(
                f"{role} ids are {columns[0].type} in {logs[0].source.name} and {column.type} in {log.source.name}; "
                "store them the same way in every part"
            )
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], type=columns[0].type)


def _titles_by_item(logs: list[LogColumns], items: NDArray[np.int32], num_items: int) -> pa.Array | None:
    if all(log.title is None for log in logs):
        return None
    columns = [log.title if log.title is not None else pa.nulls(len(log.user), pa.string()) for log in logs]
    chunks = [chunk for column in columns for chunk in getattr(column, "chunks", [column])]
    titles = pa.chunked_array(chunks, type=pa.string())
    filled = np.flatnonzero(pc.fill_null(pc.greater(pc.utf8_length(titles), 0), False).to_numpy())
    first_row = np.full(num_items, -1, dtype=np.int64)
    first_row[items[filled[::-1]]] = filled[::-1]  # the last assignment wins: the earliest row with a title
    return pc.take(titles, pa.array(first_row, mask=first_row < 0)).combine_chunks()
