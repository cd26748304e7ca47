"""Readers: a function per format; adding one is a function in a file here and its line in `READERS`.

    csv tsv          a header is recognised, or stated with `header`
    inter            RecBole: tabs, header `user_id:token<TAB>item_id:token...`
    parquet jsonl    typed columns, ids keep their type
    txt              `user item` lines ("pairs") or adjacency lists, inferred from the lines (see `lines`)

Text formats may be gzipped (`clicks.csv.gz`). In text, an id column becomes int64 only if every value is written
exactly as its integer is; `007` keeps a column of strings.
"""

import zlib
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rankformer.data.readers import delimited, lines, typed
from rankformer.data.readers.base import RawTable
from rankformer.errors import ConfigError, DataError


class Reader(NamedTuple):
    """How files of one format are read.

    Attributes:
        name: what `format=` calls it.
        suffixes: file name extensions that imply it, in lower case.
        read: given a path, the columns that the caller named, and whether there is a header, returns the table.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Collection[str], bool | None], RawTable]


_ALL = (
    Reader("csv", (".csv",), partial(delimited.read, delimiter=",")),
    Reader("tsv", (".tsv",), partial(delimited.read, delimiter="\t")),
    Reader("inter", (".inter",), partial(delimited.read, delimiter="\t", typed=True)),
    Reader("parquet", (".parquet", ".pq"), typed.read_parquet),
    Reader("jsonl", (".jsonl", ".ndjson"), typed.read_jsonl),
    Reader("txt", (".txt",), partial(lines.read, parse=lines.parse_txt)),
    Reader("pairs", (), partial(lines.read, parse=lines.parse_pairs)),
    Reader("adjacency", (), partial(lines.read, parse=lines.parse_adjacency)),
)
READERS = {reader.name: reader for reader in _ALL}
READER_OF_SUFFIX = {suffix: reader for reader in _ALL for suffix in reader.suffixes}


def read_table(path: Path, format: str | None, named: Collection[str] = (), header: bool | None = None) -> RawTable:
    """Return the table in a file; without a format (a key of `READERS`) the extension decides."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file (a folder of train/valid/test files is a DataSource)")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the path")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty; expected one interaction per line or row")
    reader = reader_by_suffix(path) if format is None else reader_by_name(format)
    if reader is None:
        known = " ".join(READER_OF_SUFFIX)
        raise DataError(f"{path.name}: unknown extension {path.suffix!r}; expected {known}, or state format=...")
    try:
        return reader.read(path, named, header)
    except PermissionError:
        raise DataError(f"{path} may not be read; check its permissions") from None
    except zlib.error as problem:
        raise DataError(f"{path.name} is damaged ({problem}); fetch or pack it again") from None


def reader_by_name(format: str) -> Reader:
    """Return the reader of a format, or say which formats there are."""
    if format not in READERS:
        raise ConfigError(f"format={format!r} is unknown; expected one of {', '.join(READERS)}")
    return READERS[format]


def reader_by_suffix(path: Path) -> Reader | None:
    """Return the reader that a file's extension implies (without `.gz`, in any case), if there is one."""
    return READER_OF_SUFFIX.get(Path(path.name.lower().removesuffix(".gz")).suffix)
