"""Files with typed values, which ids keep: Parquet, and JSON lines with one object per line."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from rankformer.data.readers.base import BadRows, RawTable, check_rows, clip, collect, is_needed, with_unread
from rankformer.data.readers.input_file import InputFile
from rankformer.errors import DataError

_BATCH = 65_536


def parquet_tables(file: InputFile, named: Collection[str] | None, whole: bool) -> Iterator[RawTable]:
    """Yield the columns of a Parquet file that a log needs, `whole` or in tables of a million rows."""
    rows = 0
    with _opened(file, named) as (names, batches):
        tables = [collect(batches, file.name, file.options)] if whole else map(pa.table, batches)
        for table in tables:
            yield RawTable(with_unread(table, names), file.name, partial(_row_after, rows), options=file.options)
            rows += table.num_rows


def _row_after(begin: int, row: int) -> str:
    return f"row {begin + row + 1}"


@contextmanager
def _opened(file: InputFile, named: Collection[str] | None) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
    """Yield the names of all columns of a Parquet file, and the needed ones in batches."""
    try:
        with pyarrow.parquet.ParquetFile(file.path, pre_buffer=False) as stored:  # or all of it is held at once
            names = stored.schema_arrow.names
            rows = stored.metadata.num_rows
            check_rows(rows, file.name, file.options)  # known before anything is unpacked
            needed = [name for name in dict.fromkeys(names) if is_needed(name, named)]
            file.check_size(8 * rows * len(needed))  # which a few repeated values could take hardly any bytes to store
            if duplicate := next((name for name in needed if names.count(name) > 1), None):
                raise DataError(
                    f"{file.name} has more than one column {duplicate!r}; rename one of them and write the file again"
                )
            if rows == 0:
                raise DataError(f"{file.name} has no rows; expected one row per interaction")
            names = list(dict.fromkeys(names))
            # A batch without columns has no rows either, so that without a needed one the first is read.
            yield names, _checked(stored.iter_batches(_BATCH * 16, columns=needed or names[:1]))
    except (pa.ArrowException, OSError, ValueError) as problem:
        if isinstance(problem, DataError):
            raise
        raise DataError(f"{file.name} is not a readable Parquet file ({clip(str(problem))}); write it again") from None


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        batch.validate(full=True)  # Parquet itself lets through strings that are not UTF-8
        yield batch


def jsonl_tables(file: InputFile, named: Collection[str] | None, whole: bool) -> Iterator[RawTable]:
    """Yield the members of the objects that a log needs, each a column of one type, always as a whole."""
    del whole
    # Python's parser and not Arrow's: Arrow turns strings that look like dates into timestamps, ids among them.
    line_numbers: list[int] = []
    bad = BadRows()
    names: dict[str, None] = {}

    def batches() -> Iterator[pa.RecordBatch]:
        objects = _objects(file, line_numbers, bad)
        while batch := list(islice(objects, _BATCH)):
            names.update((name, None) for record in batch for name in record if name.isascii() or _is_whole(name))
            needed = [name for name in names if is_needed(name, named)]
            columns = [_column(file, name, [record.get(name) for record in batch]) for name in needed]
            # One column more than needed, so that a batch without any still has its rows.
            yield pa.record_batch([*columns, pa.nulls(len(batch))], names=[*needed, "\0rows"])

    table = collect(batches(), file.name, file.options)
    if not table.num_rows:
        raise DataError(f"{file.name} holds only blank lines; expected one JSON object per line")
    table = with_unread(table, list(names))
    yield RawTable(table, file.name, lambda row: f"line {line_numbers[row]}", options=file.options, bad=bad)


def _column(file: InputFile, name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:
        raise DataError(
            f"{file.name}: column {name!r} has an integer beyond 64 bits; write such values as strings"
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise DataError(
            f"{file.name} mixes types in column {name!r} ({clip(str(problem), 120)}); use one type throughout"
        ) from None
    except UnicodeEncodeError:
        raise DataError(
            f"{file.name} has half a character (a lone surrogate such as \\ud800) in column {name!r}; write it again"
        ) from None


def _objects(file: InputFile, line_numbers: list[int], bad: BadRows) -> Iterator[dict[str, Any]]:
    """Yield the object on each line that is not blank, and add the number of its line to `line_numbers`."""
    with file.open() as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            found = ""
            try:
                value = json.loads(line.decode("utf-8-sig"))
                if not isinstance(value, dict):
                    found = f'is {_quoted(line)}; expected an object such as {{"user": 1, "item": 2}}'
            except (ValueError, RecursionError) as problem:  # ValueError: JSON's own, or a number of too many digits
                found = f"is not JSON ({clip(str(problem), 80)}): {_quoted(line)}; fix or drop it"
            if not found:
                line_numbers.append(number)
                yield value
            elif file.options.on_bad_row == "skip":
                bad.add("that are not JSON objects", f"{file.name} line {number} {found}")
            else:
                if number == 1 and line.lstrip().startswith(b"["):
                    found += " on each line (jq -c '.[]' makes them of a list)"
                raise DataError(f"{file.name} line {number} {found}")


def _is_whole(name: str) -> bool:
    """Return whether a name can be written in UTF-8; one that cannot is no column's."""
    return name.encode(errors="ignore").decode() == name


def _quoted(line: bytes) -> str:
    return repr(clip(line.decode("utf-8", "replace").strip()))
