"""Parquet files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from rankformer.data.readers.base import RawTable, Reader, ReadOptions, clip, with_unread
from rankformer.errors import DataError


def _read(path: Path, options: ReadOptions) -> RawTable:
    try:
        with pyarrow.parquet.ParquetFile(path) as stored:
            names = list(dict.fromkeys(stored.schema_arrow.names))
            table = stored.read(columns=[name for name in names if options.needs(name)])
            rows = stored.metadata.num_rows
    except (pa.ArrowException, OSError) as problem:
        raise DataError(f"{path.name} is not a readable Parquet file ({clip(str(problem))}); write it again") from None
    if rows == 0:
        raise DataError(f"{path.name} has no rows; expected one row per interaction")
    return RawTable(with_unread(table, names), path.name)


READERS = (Reader("parquet", (".parquet", ".pq"), _read),)
