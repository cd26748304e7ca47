"""Milvus: Parquet files as its bulk import reads them, and the schemas of their collections as pymilvus reads them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rankformer.errors import DataError
from rankformer.export.contents import Contents, Tables, VectorTable
from rankformer.export.documents import plain_ids
from rankformer.export.targets import SIDES, Target, write_parquet

MAX_DIMENSION, MAX_BYTES = 32_768, 65_535  # of a vector, and of a string
_INT64, _VARCHAR, _FLOAT_VECTOR = 5, 21, 101  # Milvus's numbers of types


class Milvus(Target):
    """SIDE.parquet with index (the primary key), id, title and vector; SIDE.schema.json."""

    name = "milvus"
    files = tuple(f"{side}s.{kind}" for side in SIDES for kind in ("parquet", "schema.json"))

    def write(self, contents: Contents, folder: Path) -> None:
        dimension = contents.metadata["dimension"]
        if dimension > MAX_DIMENSION:
            raise DataError(f"dimension {dimension}: Milvus holds at most {MAX_DIMENSION}; train with fewer")
        for side, table in zip(SIDES, contents.tables, strict=True):
            columns = {"index": pa.array(np.arange(len(table.ids))), "id": plain_ids(table.ids)}
            if table.titles is not None:
                columns["title"] = table.titles.cast(pa.string())
            fields = [_field(name, column) for name, column in columns.items()]
            fields.append({"name": "vector", "type": _FLOAT_VECTOR, "params": {"dim": dimension}})
            schema = {"auto_id": False, "enable_dynamic_field": False, "description": "", "fields": fields}
            (folder / f"{side}s.schema.json").write_text(json.dumps(schema, indent=2) + "\n", encoding="ascii")
            flat = pa.FixedSizeListArray.from_arrays(pa.array(table.vectors.reshape(-1)), dimension)
            write_parquet(
                folder / f"{side}s.parquet", {**columns, "vector": flat.cast(pa.list_(pa.float32()))}, contents
            )

    def read(self, folder: Path) -> Tables:
        tables = []
        for side in SIDES:
            table = pq.read_table(folder / f"{side}s.parquet").combine_chunks()
            columns = {name: table[name].combine_chunks() for name in table.column_names}
            vectors = columns["vector"].flatten().to_numpy().reshape(table.num_rows, -1)
            tables.append(VectorTable(columns["id"], vectors, columns.get("title")))
        return Tables(*tables)


def _field(name: str, column: pa.Array) -> dict[str, Any]:
    """Return a field of a schema for integers or strings."""
    if column.type == pa.int64():
        key = {"is_primary": True, "auto_id": False} if name == "index" else {}
        return {"name": name, "description": "", "type": _INT64, **key}
    longest = max((len(value.encode()) for value in column.to_pylist() if value is not None), default=0)
    if longest > MAX_BYTES:
        raise DataError(f"a {name} of {longest:,} bytes: Milvus strings hold at most {MAX_BYTES:,}; shorten it")
    nullable = {"nullable": True} if column.null_count else {}
    return {"name": name, "description": "", "type": _VARCHAR, "params": {"max_length": MAX_BYTES}, **nullable}
