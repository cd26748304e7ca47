"""From what DATA names to logs: one file, standard input, several files, a folder in one of its forms, a database."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from rankformer.data.columns import find_column, pick_columns
from rankformer.data.readers import READER_OF_SUFFIX, read_tables, reader_by_suffix
from rankformer.data.readers.base import SHOWN_BAD_ROWS, BadRows, RawTable, check_rows, is_needed
from rankformer.data.readers.delimited import is_number
from rankformer.data.readers.layouts import find_layout, read_layout
from rankformer.data.readers.options import ReadOptions
from rankformer.data.readers.sql import is_database, redact, sql_tables
from rankformer.errors import ConfigError, DataError

STDIN = "-"
PART_STEMS = {"train": ("train",), "valid": ("valid", "val", "validation"), "test": ("test",)}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Names = Mapping[str, str | None]


class Log(NamedTuple):
    """A log that was read, and the part that it is: 0 train, 1 valid, 2 test, or None if it is not split."""

    table: RawTable
    label: int | None = None


def is_there(source: str) -> bool:
    """Return whether a source can be read again: a file, a pattern that fits files, a database."""
    return is_database(source) or Path(source).expanduser().exists() or bool(has_magic(source) and _matches(source))


def comes_split(source: str, options: ReadOptions) -> bool:
    """Return whether a source is a folder with train, valid and test in files of their own."""
    folder = Path(source).expanduser()
    if source == STDIN or is_database(source) or not folder.is_dir():
        return False
    if 0 in _part_files(folder):
        return True
    found = find_layout(folder, options.format)
    return found is not None and len(found[1]) > 1  # several that are not such parts are refused by `read_logs`


def read_logs(source: str, options: ReadOptions, names: Names, *, whole: bool = True) -> Iterator[Log]:
    """Yield the logs that DATA names, one after another.

    Args:
        source: a file, `-` for standard input, a pattern such as `logs/*.csv`, a folder, or the address of a database.
        options: how to read it.
        names: column name per role, as for `pick_columns`.
        whole: whether each file is one log; else they come in tables of bounded size, as far as the format can be read
            in pieces. A text file in pieces whose times are numbers here and dates there is refused.
    """
    if not is_database(source) and (options.query or options.table):
        setting = "query" if options.query else "table"
        raise ConfigError(f"{setting}=... is for databases, and {source} is none; leave it out (--{setting})")
    name = redact(source) if is_database(source) else Path(source).name or source
    rows, of_files = 0, {}
    for log in _read(source, options, names, whole):
        rows += log.table.table.num_rows
        check_rows(rows, name, options)
        of_files[id(log.table.bad)] = log.table.bad  # the tables of one file share theirs
        yield log
    bad = BadRows()
    for each in of_files.values():
        bad.counts += each.counts
        bad.examples += each.examples[: SHOWN_BAD_ROWS - len(bad.examples)]
    bad.report(name, rows, options.bad_rows)


def _read(source: str, options: ReadOptions, names: Names, whole: bool) -> Iterator[Log]:
    if is_database(source):
        for rows in sql_tables(source, options, _named(names), whole):
            yield Log(pick_columns(rows, names))
        return
    if source == STDIN:
        yield from _read_stdin(options, names, whole)
        return
    path = Path(source).expanduser()
    if has_magic(source) and not path.exists():
        for file in _matches(source):
            yield from read_file(file, options, names, whole)
    elif path.is_dir():
        yield from _read_folder(path, options, names, whole)
    else:
        yield from read_file(path, options, names, whole)


def read_file(
    path: Path, options: ReadOptions, names: Names, whole: bool = True, part: int | None = None, label: str = ""
) -> Iterator[Log]:
    """Yield the log in one file, `whole` or in pieces; a known layout is always whole."""
    found = find_layout(path, options.format)
    if found is None:
        yield from _tables(path, options, names, whole, part, label)
        return
    raw, columns = read_layout(found[0], path, options, _named(names))
    if names.get("event"):
        columns.pop("weight", None)  # multiplies only if it is named
    yield Log(pick_columns(raw, {**columns, **{role: name for role, name in names.items() if name is not None}}), part)


def _tables(
    path: Path,
    options: ReadOptions,
    names: Names,
    whole: bool,
    part: int | None,
    label: str,
    folder: Path | None = None,
) -> Iterator[Log]:
    """Yield the log in a file of no layout; the names of the folders above it, up to `folder`, may be columns."""
    dates: bool | None = None
    for raw in read_tables(path, _named(names), options, label, whole=whole):
        if folder is not None:
            raw = _with_partitions(raw, path.relative_to(folder), _named(names))
        picked = pick_columns(raw, names)
        if not whole and raw.is_text and "time" in picked.table.column_names:
            column = raw.table[find_column(raw, "time", names.get("time"))]
            is_date = not is_number(next((text for text in map(str, column[:1000]) if text.strip()), ""))
            if dates not in (None, is_date):
                raise DataError(f"{raw.name} {raw.locate(0)}: times are dates and numbers; write them in one way")
            dates = is_date
        yield Log(picked, part)


def _read_stdin(options: ReadOptions, names: Names, whole: bool) -> Iterator[Log]:
    """Yield the log on standard input, which is first put into a temporary file: readers pass over a file twice."""
    if options.format is None:
        raise ConfigError("standard input has no extension; state its format with --format, such as --format csv")
    with tempfile.NamedTemporaryFile(prefix="rankformer-stdin-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield from read_file(Path(copy.name), options, names, whole, label="standard input")


def _read_folder(folder: Path, options: ReadOptions, names: Names, whole: bool) -> Iterator[Log]:
    parts = _part_files(folder)
    if 0 not in parts and (found := find_layout(folder, options.format)):
        layout, files = found
        options = options.model_copy(update={"format": layout.name})
        parts = {None: files[0]}
        if len(files) > 1:
            parts = {label: file for file in files if (label := _label_of(file)) is not None}
            if len(parts) < len(files) or 0 not in parts:
                listed = ", ".join(file.name for file in files[:4])
                raise DataError(f"{folder} has {len(files)} files of interactions ({listed}); name one of them")
    if 0 in parts or None in parts:
        for part in sorted(parts, key=lambda label: label or 0):
            yield from read_file(parts[part], options, names, whole, part)
        return
    files = [file for file in sorted(folder.rglob("*")) if _is_part(file, folder)]
    if not files:
        endings = " ".join(READER_OF_SUFFIX)
        raise DataError(
            f"{folder} has no train file; expected train, valid and test files ending in one of {endings}, "
            "or the parts of one log"
        )
    for file in files:
        yield from _tables(file, options, names, whole, None, str(file.relative_to(folder)), folder)


def _matches(pattern: str) -> list[Path]:
    files = [Path(name) for name in sorted(glob(str(Path(pattern).expanduser()), recursive=True))]
    files = [file for file in files if file.is_file()]
    if not files:
        raise DataError(f"no file fits {pattern}; check the pattern")
    return files


def _part_files(folder: Path) -> dict[int | None, Path]:
    """Return the train, valid and test files of a folder, by their labels."""
    found: dict[int | None, Path] = {}
    for label, (part, stems) in enumerate(PART_STEMS.items()):
        files = [
            file
            for file in sorted(folder.iterdir())
            if file.name.split(".")[0] in stems and reader_by_suffix(file) is not None and file.is_file()
        ]
        if len(files) > 1:
            raise DataError(
                f"{folder} has {files[0].name} and {files[1].name}; expected one {part} file, remove the other"
            )
        if files:
            found[label] = files[0]
    return found


def _label_of(file: Path) -> int | None:
    """Return the part that a file such as `X.train.inter` is."""
    words = file.name.split(".")[1:]
    return next((label for label, stems in enumerate(PART_STEMS.values()) if set(stems) & set(words)), None)


def _is_part(file: Path, folder: Path) -> bool:
    """Return whether a file is part of a log: not hidden, nor one of the notes that Spark and others leave."""
    hidden = any(name.startswith((".", "_")) for name in file.relative_to(folder).parts)
    return not hidden and file.is_file() and reader_by_suffix(file) is not None


def _with_partitions(raw: RawTable, file: Path, named: list[str]) -> RawTable:
    """Return the table with a column for each folder on the way to it that is called `name=value`."""
    table = raw.table
    for name, sign, value in (folder.partition("=") for folder in file.parts[:-1]):
        if sign and is_needed(name, named) and name not in table.column_names:
            text = None if value == _NO_VALUE else unquote(value)
            table = table.append_column(name, pa.repeat(pa.scalar(text, pa.string()), table.num_rows))
    return replace(raw, table=table)


def _named(names: Names) -> list[str]:
    return [name for name in names.values() if name]
