"""Users and items as JSON documents, which several databases load; an item's number is its position in the run."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rankformer.errors import DataError
from rankformer.export.contents import VectorTable
from rankformer.export.postgres_text import format_vectors

_ROWS_AT_ONCE = 1000


def plain_ids(ids: pa.Array) -> pa.Array:
    """Return ids as 64-bit integers or strings, the only kinds that every database here has.

    Raises:
        DataError: they are bytes or times of day, which have no common form.
    """
    if pa.types.is_integer(ids.type) and ids.type != pa.uint64():
        return ids.cast(pa.int64())
    if any(refused(ids.type) for refused in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_time)):
        raise DataError(f"ids of type {ids.type} cannot be kept as numbers or strings; export to parquet or pgvector")
    if pa.types.is_timestamp(ids.type) and ids.type.tz is not None:
        ids = ids.cast(pa.timestamp(ids.type.unit, "UTC"))
    return ids.cast(pa.string())


def documents(table: VectorTable) -> Iterator[tuple[int, str, str]]:
    """Yield number, columns (a JSON object) and vector (a JSON array, exact) of each row."""
    columns = pa.table({**table.named(), "id": plain_ids(table.ids)})
    for start in range(0, len(table.ids), _ROWS_AT_ONCE):
        rows = columns.slice(start, _ROWS_AT_ONCE).to_pylist()
        vectors = format_vectors(table.vectors[start : start + _ROWS_AT_ONCE]).to_pylist()
        for number, (row, vector) in enumerate(zip(rows, vectors, strict=True), start):
            known = {name: None if value != value else value for name, value in row.items()}  # JSON has no NaN
            yield number, json.dumps(known, default=str), vector


def table_of(rows: Iterable[dict[str, Any]]) -> VectorTable:
    """Return the table of documents that hold id, title where there are any, and vector."""
    found = list(rows)
    titles = pa.array([row["title"] for row in found], pa.string()) if "title" in found[0] else None
    vectors = np.array([row["vector"] for row in found], dtype=np.float32)
    return VectorTable(pa.array([row["id"] for row in found]), vectors, titles)
