"""What `Interactions` are made of besides files: frames and tables of other libraries, sparse matrices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rankformer.data.columns import pick_columns
from rankformer.data.id_map import IdMap
from rankformer.data.readers.base import RawTable
from rankformer.data.readers.options import ROLES, ReadOptions
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions


def parts_of(kind: "type[Interactions]", parts: Sequence[Any], columns: Mapping[str, Any]) -> "list[Interactions]":
    """Return logs in whatever holds them, as `Interactions.parts_of` says."""
    given = {role: name for role, name in columns.items() if name is not None}
    tables = [table_of(part) for part in parts]
    frames = [table for table in tables if table is not None]
    if frames and len(frames) < len(parts):
        raise ConfigError("train and valid are of different kinds; pass two tables, or the two parts of a split")
    if frames:
        weights = given.pop("event_weights", None)
        logs = [picked(table, given, weights) for table in frames]
        sizes = [log.table.num_rows for log in logs]
        whole = kind.from_logs(logs)
        return [whole.rows(np.arange(end - size, end)) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    found = []
    for part in parts:
        if given and not isinstance(part, str | Path):
            raise ConfigError(f"{min(given)}=... names a column of a table or file, and this is {_named(part)}")
        if isinstance(part, str | Path):
            part = kind.read(part, **given)
        elif hasattr(part, "tocsr"):
            part = kind.from_csr(part)
        if not isinstance(part, kind):
            raise ConfigError(
                f"{_named(part)} is not a log; expected Interactions, a pandas or polars frame, an Arrow table, "
                "a scipy sparse matrix or the path of a file"
            )
        found.append(part)
    return found


def from_csr(
    kind: "type[Interactions]", matrix: Any, user_ids: Sequence[Any] | None, item_ids: Sequence[Any] | None
) -> "Interactions":
    """Return an interaction per non-zero entry of a scipy sparse matrix, as `Interactions.from_csr` says."""
    entries = matrix.tocsr().tocoo()  # through CSR, which adds up duplicate entries
    weights = entries.data.astype(np.float32)
    if not np.isfinite(weights).all():
        raise DataError("the matrix has values that are not finite; fix or drop them")
    chosen = weights != 0
    maps = []
    for label, size, ids in zip(("user", "item"), matrix.shape, (user_ids, item_ids), strict=True):
        if ids is not None and len(ids) != size:
            raise DataError(f"{len(ids)} {label} ids for a matrix with {size} of them; they must match")
        maps.append(IdMap.dense(size) if ids is None else IdMap(pa.array(ids)))
    users, items = entries.row[chosen].astype(np.int32), entries.col[chosen].astype(np.int32)
    return kind(users, items, maps[0], maps[1], weights=weights[chosen])


def picked(table: pa.Table, columns: Mapping[str, str | None], event_weights: Mapping[str, float] | None) -> RawTable:
    """Return the log in an Arrow table."""
    for role in sorted(set(columns) - set(ROLES)):
        raise ConfigError(f"{role}=... is unknown; expected {', '.join(ROLES)} or event_weights")
    options = ReadOptions(event_weights=None if event_weights is None else dict(event_weights))
    return pick_columns(RawTable(table, options=options), columns)


def table_of(data: Any) -> pa.Table | None:
    """Return a frame or table as an Arrow table; None if it is neither."""
    if isinstance(data, pa.Table):
        return data
    if type(data).__module__.startswith("pandas") and hasattr(data, "columns"):
        return from_pandas(data)
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        return pa.table(data)
    return None


def from_pandas(frame: Any) -> pa.Table:
    """Return a pandas frame as an Arrow table."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (TypeError, ValueError) as error:  # those of Arrow among them
        found = " ".join(" ".join(map(str, error.args)).split())
        raise DataError(f"the frame cannot be read: {found}; give each column its own name and one type") from error


def _named(value: Any) -> str:
    return f"{type(value).__module__.split('.')[0]}.{type(value).__name__}".removeprefix("builtins.")
