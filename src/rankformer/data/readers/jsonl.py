"""JSON lines: one object per line."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from rankformer.data.readers.base import RawTable, Reader, ReadOptions, clip, not_utf8, open_bytes
from rankformer.errors import DataError

_BATCH = 65_536


def _read(path: Path, options: ReadOptions) -> RawTable:
    # Python's parser and not Arrow's: Arrow turns strings that look like dates into timestamps, ids among them.
    line_numbers: list[int] = []
    tables = []
    objects = _objects(path, line_numbers)
    while batch := list(islice(objects, _BATCH)):
        tables.append(_table_of(path, batch, options))
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


def _table_of(path: Path, objects: list[dict[str, Any]], options: ReadOptions) -> pa.Table:
    columns = {}
    for name in dict.fromkeys(name for record in objects for name in record):
        if not options.needs(name):
            columns[name] = pa.nulls(len(objects))
            continue
        try:
            columns[name] = pa.array([record.get(name) for record in objects])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
            raise DataError(
                f"{path.name} mixes types in column {name!r} ({clip(str(problem), 120)}); use one type throughout"
            ) from None
    return pa.table(columns)


READERS = (Reader("jsonl", (".jsonl", ".ndjson"), _read),)
