"""Parquet: a file of users and one of items, with id, title and a list column of fixed length for the vectors."""

from pathlib import Path

import pyarrow as pa

from rankformer.export.base import Target, read_parquet, write_parquet
from rankformer.export.contents import Contents, Tables, VectorTable


class ParquetFiles(Target):
    """users.parquet and items.parquet, for pandas, polars, DuckDB, Spark and most vector databases."""

    name = "parquet"
    files = ("users.parquet", "items.parquet")

    def write(self, contents: Contents, folder: Path) -> None:
        """Write both tables."""
        for table, file in zip(contents.tables, self.files, strict=False):
            numbers = pa.array(table.vectors.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(numbers, table.vectors.shape[1])
            write_parquet(folder / file, {**table.named(), "vector": vectors}, contents)

    def read(self, folder: Path) -> Tables:
        """Return users and items with their vectors taken from the list columns."""
        tables = []
        for file in self.files[:2]:
            columns = read_parquet(folder / file)
            vectors = columns["vector"]
            numbers = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, vectors.type.list_size)
            tables.append(VectorTable(columns["id"], numbers, columns.get("title")))
        return Tables(*tables)
