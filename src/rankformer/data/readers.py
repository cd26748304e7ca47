"""Files of every supported format as `LogColumns`.

    .csv .tsv                 a header is recognised, or stated with `header`
    .inter                    RecBole: tabs, header `user_id:token<TAB>item_id:token...`
    .parquet .pq              typed columns, ids keep their type
    .jsonl .ndjson            one JSON object per line, ids keep their type
    .txt                      `user item` pairs or adjacency lists, told from the lines (see `text_lines.read_lines`)

Text formats may be gzipped (`clicks.csv.gz`). In text, an id column becomes int64 only if every value is written
exactly as its integer is; `007` keeps a column text.
"""

import json
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.parquet

from rankformer.data.columns import LogColumns, may_be_wanted, pick_columns, with_unread
from rankformer.data.delimited import open_bytes, read_delimited
from rankformer.data.tables import RawTable, clip
from rankformer.data.text_lines import LineFormat, read_lines
from rankformer.errors import ConfigError, DataError

Format = Literal["csv", "tsv", "inter", "parquet", "jsonl", "pairs", "adjacency"]

FORMAT_OF_EXTENSION = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".inter": "inter",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "txt",
}

_JSON_BATCH = 65_536


def read_columns(
    path: Path, format: str | None = None, names: dict[str, str | None] | None = None, header: bool | None = None
) -> LogColumns:
    """Return the columns of a log in a file.

    Args:
        path: the file.
        format: one of `Format`, or None to tell it from the extension.
        names: column name per role, see `pick_columns`.
        header: whether a csv or tsv file starts with column names; None looks for them.
    """
    names = names or {}
    _check_file(path)
    try:
        raw = _read_raw(path, _format_of(path, format), [name for name in names.values() if name], header)
    except PermissionError:
        raise DataError(f"{path} may not be read; check its permissions") from None
    except zlib.error as problem:
        raise DataError(f"{path.name} is damaged ({problem}); fetch or pack it again") from None
    return pick_columns(raw, names)


def extension_of(path: Path) -> str:
    """Return the extension that tells the format, in lower case and without `.gz`."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _read_raw(path: Path, format: str, named: list[str], header: bool | None) -> RawTable:
    match format:
        case "csv" | "tsv":
            return read_delimited(path, "," if format == "csv" else "\t", header, named)
        case "inter":
            return read_delimited(path, "\t", header=True, named=named, typed=True)
        case "parquet":
            return _read_parquet(path, named)
        case "jsonl":
            return _read_jsonl(path, named)
        case "txt":
            return read_lines(path, None)
        case _:
            return read_lines(path, cast(LineFormat, format))


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file (a folder of train/valid/test files is a DataSource)")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the path")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty; expected one interaction per line or row")


def _format_of(path: Path, stated: str | None) -> str:
    if stated is not None:
        if stated not in get_args(Format):
            raise ConfigError(f"format={stated!r} is unknown; expected one of {', '.join(get_args(Format))}")
        return stated
    found = FORMAT_OF_EXTENSION.get(extension_of(path))
    if found is None:
        known = " ".join(FORMAT_OF_EXTENSION)
        raise DataError(f"{path.name}: unknown extension {path.suffix!r}; expected {known}, or state format=...")
    return found


def _read_parquet(path: Path, named: list[str]) -> RawTable:
    try:
        with pyarrow.parquet.ParquetFile(path) as stored:
            names = list(dict.fromkeys(stored.schema_arrow.names))
            table = stored.read(columns=[name for name in names if may_be_wanted(name, named)])
            rows = stored.metadata.num_rows
    except (pa.ArrowException, OSError) as problem:
        raise DataError(f"{path.name} is not a readable Parquet file ({clip(str(problem))}); write it again") from None
    if rows == 0:
        raise DataError(f"{path.name} has no rows; expected one row per interaction")
    return RawTable(with_unread(table, names), path.name)


def _read_jsonl(path: Path, named: list[str]) -> RawTable:
    # Python's parser and not Arrow's: Arrow turns texts that look like dates into timestamps, ids among them.
    line_numbers: list[int] = []
    tables = []
    with open_bytes(path) as stream:
        objects = _json_objects(path, enumerate(stream, 1), line_numbers)
        while batch := list(islice(objects, _JSON_BATCH)):
            tables.append(_table_of(path, batch, named))
    if not tables:
        raise DataError(f"{path.name} holds only blank lines; expected one JSON object per line")
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise DataError(f"{path.name} mixes types in a column: {clip(str(problem), 120)}; use one type") from None
    return RawTable(table, path.name, lambda row: f"line {line_numbers[row]}")


def _json_objects(path: Path, lines: Iterator[tuple[int, bytes]], line_numbers: list[int]) -> Iterator[dict[str, Any]]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise DataError(f"{path.name}: line {number} is not UTF-8; save the file as UTF-8") from None
        except (json.JSONDecodeError, RecursionError) as problem:
            text = clip(line.decode("utf-8", "replace").strip())
            raise DataError(f"{path.name} line {number} is not JSON ({problem}): {text!r}; mend or drop it") from None
        if not isinstance(value, dict):
            text = clip(line.decode("utf-8", "replace").strip())
            raise DataError(
                f'{path.name} line {number} is {text!r}; expected an object such as {{"user": 1, "item": 2}}'
            )
        line_numbers.append(number)
        yield value


def _table_of(path: Path, objects: list[dict[str, Any]], named: list[str]) -> pa.Table:
    names = dict.fromkeys(name for record in objects for name in record)
    columns = {}
    for name in names:
        if not may_be_wanted(name, named):
            columns[name] = pa.nulls(len(objects))
            continue
        try:
            columns[name] = pa.array([record.get(name) for record in objects])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as problem:
            raise DataError(
                f"{path.name} mixes types in column {name!r} ({clip(str(problem), 120)}); use one type throughout"
            ) from None
    return pa.table(columns)
