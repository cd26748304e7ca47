"""Files with typed values, which ids keep: Parquet, and JSON lines with one object per line."""

import json
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from rankformer.data.readers.base import RawTable, clip, is_needed, not_utf8, open_bytes, with_unread
from rankformer.errors import DataError

_BATCH = 65_536


def read_parquet(path: Path, named: Collection[str], _header: bool | None) -> RawTable:
    """Return the columns of a Parquet file that a log needs."""
    try:
        with pyarrow.parquet.ParquetFile(path) as stored:
            names = list(dict.fromkeys(stored.schema_arrow.names))
            table = stored.read(columns=[name for name in names if is_needed(name, named)])
            rows = stored.metadata.num_rows
    except (pa.ArrowException, OSError) as problem:
        raise DataError(f"{path.name} is not a readable Parquet file ({clip(str(problem))}); write it again") from None
    if rows == 0:
        raise DataError(f"{path.name} has no rows; expected one row per interaction")
    return RawTable(with_unread(table, names), path.name)


def read_jsonl(path: Path, named: Collection[str], _header: bool | None) -> RawTable:
    """Return the members of the objects that a log needs, each a column of one type."""
    # Python's parser and not Arrow's: Arrow turns strings that look like dates into timestamps, ids among them.
    line_numbers: list[int] = []
    tables = []
    objects = _objects(path, line_numbers)
    while batch := list(islice(objects, _BATCH)):
        columns = {}
        for name in dict.fromkeys(name for record in batch for name in record):
            needed = is_needed(name, named)
            try:
                columns[name] = pa.array([record.get(name) if needed else None for record in batch])
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
                raise DataError(
                    f"{path.name} mixes types in column {name!r} ({clip(str(problem), 120)}); use one type throughout"
                ) from None
        tables.append(pa.table(columns))
    if not tables:
        raise DataError(f"{path.name} holds only blank lines; expected one JSON object per line")
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise DataError(f"{path.name} mixes types in a column: {clip(str(problem), 120)}; use one type") from None
    return RawTable(table, path.name, lambda row: f"line {line_numbers[row]}")


def _objects(path: Path, line_numbers: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the object on each line that is not blank, and add the number of its line to `line_numbers`."""
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8-sig"))
            except UnicodeDecodeError:
                raise not_utf8(path) from None
            except (json.JSONDecodeError, RecursionError) as problem:
                found = f"is not JSON ({problem}): {_quoted(line)}; fix or drop it"
                raise DataError(f"{path.name} line {number} {found}") from None
            if not isinstance(value, dict):
                found = f'is {_quoted(line)}; expected an object such as {{"user": 1, "item": 2}}'
                raise DataError(f"{path.name} line {number} {found}")
            line_numbers.append(number)
            yield value


def _quoted(line: bytes) -> str:
    return repr(clip(line.decode("utf-8", "replace").strip()))
