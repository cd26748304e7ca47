"""Tables written to csv, tsv, parquet or jsonl files, which `Interactions.read` reads back."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from rankformer.errors import DataError
from rankformer.files import atomic_path

_BATCH = 65_536


def write_table(table: pa.Table, path: Path) -> None:
    """Write any table in the format that the extension names, in one step for readers."""
    extension = check_writable(path)
    with atomic_path(path) as temporary:
        if extension == ".parquet":
            pyarrow.parquet.write_table(table, temporary)
        elif extension == ".jsonl":
            _write_jsonl(table, temporary)
        else:
            _write_delimited(table, temporary, "," if extension == ".csv" else "\t")


def check_writable(path: Path) -> str:
    """Return the extension of a file that can be written here, or say which can be."""
    extension = path.suffix.lower()
    if extension not in (".csv", ".tsv", ".parquet", ".jsonl"):
        raise DataError(f"{path.name}: cannot write {extension!r} files; expected .csv, .tsv, .parquet or .jsonl")
    return extension


def _write_delimited(table: pa.Table, path: Path, delimiter: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)  # its \r\n makes it quote ids that hold either
        writer.writerow(table.column_names)
        for batch in table.to_batches(max_chunksize=_BATCH):
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _write_jsonl(table: pa.Table, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        for batch in table.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
