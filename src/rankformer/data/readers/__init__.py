"""Readers: a function per format; adding one is a function in a file here and its line in `READERS`.

    csv tsv          a header is recognised, or stated with `header`
    inter            RecBole: tabs, header `user_id:token<TAB>item_id:token...`
    parquet jsonl    typed columns, ids keep their type
    txt              `user item` lines ("pairs") or adjacency lists, inferred from the lines (see `lines`)

Text may be packed (`.gz`, `.zst`, or a `.zip` with one file); delimiter and encoding are detected or stated. In text,
an id column becomes int64 only if every value is written exactly as its integer is; `007` keeps a column of strings.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rankformer.data.readers import delimited, lines, typed
from rankformer.data.readers.base import DEFAULTS, RawTable
from rankformer.data.readers.input_file import PACKED, InputFile
from rankformer.data.readers.options import ReadOptions
from rankformer.errors import ConfigError, DataError


class Reader(NamedTuple):
    """How files of one format are read.

    Attributes:
        name: what `format=` calls it.
        suffixes: file name extensions that imply it, in lower case.
        tables: given a file, the columns that the caller named (None: all) and whether to read it whole, yields its
            table, or tables of bounded size one after another where the format can be read in pieces.
    """

    name: str
    suffixes: tuple[str, ...]
    tables: Callable[[InputFile, Collection[str] | None, bool], Iterator[RawTable]]


_ALL = (
    Reader("csv", (".csv",), partial(delimited.tables, delimiter=",")),
    Reader("tsv", (".tsv",), partial(delimited.tables, delimiter="\t")),
    Reader("inter", (".inter",), partial(delimited.tables, delimiter="\t", typed=True)),
    Reader("parquet", (".parquet", ".pq"), typed.parquet_tables),
    Reader("jsonl", (".jsonl", ".ndjson", ".json"), typed.jsonl_tables),
    Reader("txt", (".txt",), partial(lines.tables, parse=lines.parse_txt)),
    Reader("pairs", (), partial(lines.tables, parse=lines.parse_pairs)),
    Reader("adjacency", (), partial(lines.tables, parse=lines.parse_adjacency)),
)
READERS = {reader.name: reader for reader in _ALL}
READER_OF_SUFFIX = {suffix: reader for reader in _ALL for suffix in reader.suffixes}


def read_table(
    path: Path, named: Collection[str] | None = (), options: ReadOptions = DEFAULTS, label: str = ""
) -> RawTable:
    """Return the table in a file.

    Args:
        path: of the file.
        named: columns to read besides those with known names; None reads every column.
        options: how to read it; without a format the extension decides.
        label: what to call the file in an error, if not by its name.
    """
    return next(read_tables(path, named, options, label, whole=True))


def read_tables(
    path: Path, named: Collection[str] | None, options: ReadOptions, label: str = "", *, whole: bool
) -> Iterator[RawTable]:
    """Yield what `read_table` returns: `whole`, or in tables of bounded size where the format can be read in pieces."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file (a folder of train/valid/test files is a DataSource)")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the path")
    file = InputFile(path, options, label)
    if not path.is_file():
        raise DataError(f"{file.name} is not a regular file; pipe it in and read it with - in place of the path")
    if path.stat().st_size == 0:
        raise DataError(f"{file.name} is empty; expected one interaction per line or row")
    try:
        reader = reader_by_suffix(path) if options.format is None else reader_by_name(options.format)
        if reader is None and file.packing == ".zip":
            reader = reader_by_suffix(Path(file.member))
        if reader is None:
            known = " ".join(READER_OF_SUFFIX)
            raise DataError(
                f"{file.name}: unknown extension {path.suffix!r}; expected {known}, or state format=... (--format)"
            )
        if reader.name == "parquet" and file.packing:
            raise DataError(f"{file.name} is a packed Parquet file; unpack it first")
        yield from reader.tables(file, named, whole)
    except PermissionError:
        raise DataError(f"{path} may not be read; check its permissions") from None


def reader_by_name(format: str) -> Reader:
    """Return the reader of a format, or say which formats there are."""
    if format not in READERS:
        raise ConfigError(f"format={format!r} is unknown; expected one of {', '.join(READERS)}")
    return READERS[format]


def reader_by_suffix(path: Path) -> Reader | None:
    """Return the reader that a file's extension implies (without that of its packing, in any case), if there is one."""
    name = Path(path.name.lower())
    return READER_OF_SUFFIX.get(Path(name.stem if name.suffix in PACKED else name).suffix)
