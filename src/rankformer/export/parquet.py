"""Parquet: one file per side with id, title and a list column of fixed length for the vectors."""

from pathlib import Path

import pyarrow as pa

from rankformer.export.base import CARD, Format, read_columns, write_card, write_table
from rankformer.export.contents import Contents, Tables, VectorTable


class Parquet(Format):
    """users.parquet and items.parquet, for pandas, polars, DuckDB, Spark and most vector databases."""

    name = "parquet"
    files = ("users.parquet", "items.parquet", CARD)

    def write(self, contents: Contents, folder: Path) -> None:
        """Write both tables and the card."""
        for side, file in zip(contents.tables, self.files, strict=False):
            numbers = pa.array(side.vectors.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(numbers, side.vectors.shape[1])
            write_table(folder / file, {**side.named(), "vector": vectors}, contents)
        write_card(contents, folder)

    def read(self, folder: Path) -> Tables:
        """Return both sides with their vectors taken from the list columns."""
        return Tables(*(_read_side(folder / file) for file in self.files[:2]))


def _read_side(path: Path) -> VectorTable:
    columns = read_columns(path)
    vectors = columns["vector"]
    numbers = vectors.flatten().to_numpy(zero_copy_only=False)
    return VectorTable(columns["id"], numbers.reshape(-1, vectors.type.list_size), columns.get("title"))
