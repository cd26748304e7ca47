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
from typing import Any, NamedTuple

from rankformer.data.readers import delimited, lines, typed
from rankformer.data.readers.base import PACKED, InputFile, RawTable, ReadOptions
from rankformer.errors import ConfigError, DataError


class Reader(NamedTuple):
    """How files of one format are read.

    Attributes:
        name: what `format=` calls it.
        suffixes: file name extensions that imply it, in lower case.
        read: given a file and the columns that the caller named (None: all), returns the table.
        stream: the same in tables of bounded size one after another; None where the format can only be read whole.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[InputFile, Collection[str] | None], RawTable]
    stream: Callable[[InputFile, Collection[str] | None], Iterator[RawTable]] | None = None


_RECBOLE: dict[str, Any] = {"delimiter": "\t", "typed": True}
_ALL = (
    Reader("csv", (".csv",), partial(delimited.read, delimiter=","), partial(delimited.tables, delimiter=",")),
    Reader("tsv", (".tsv",), partial(delimited.read, delimiter="\t"), partial(delimited.tables, delimiter="\t")),
    Reader("inter", (".inter",), partial(delimited.read, **_RECBOLE), partial(delimited.tables, **_RECBOLE)),
    Reader("parquet", (".parquet", ".pq"), typed.read_parquet, typed.parquet_tables),
    Reader("jsonl", (".jsonl", ".ndjson", ".json"), typed.read_jsonl),
    Reader("txt", (".txt",), partial(lines.read, parse=lines.parse_txt)),
    Reader("pairs", (), partial(lines.read, parse=lines.parse_pairs)),
    Reader("adjacency", (), partial(lines.read, parse=lines.parse_adjacency)),
)
READERS = {reader.name: reader for reader in _ALL}
READER_OF_SUFFIX = {suffix: reader for reader in _ALL for suffix in reader.suffixes}


def read_table(
    path: Path,
    format: str | None = None,
    named: Collection[str] | None = (),
    header: bool | None = None,
    options: ReadOptions | None = None,
    label: str = "",
) -> RawTable:
    """Return the table in a file.

    Args:
        path: of the file.
        format: a key of `READERS`; without one the options or the extension decide.
        named: columns to read besides those with known names; None reads every column.
        header: whether the first line names the columns; None leaves it to the options.
        options: how to read it.
        label: what to call the file in an error, if not by its name.
    """
    options = options or ReadOptions()
    if header is not None:
        options = options.model_copy(update={"header": header})
    return next(read_tables(path, format, named, options, label, whole=True))


def read_tables(
    path: Path,
    format: str | None,
    named: Collection[str] | None,
    options: ReadOptions,
    label: str = "",
    whole: bool = False,
) -> Iterator[RawTable]:
    """Yield what `read_table` returns in tables of bounded size, where the format can; else, or if asked, `whole`."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file (a folder of train/valid/test files is a DataSource)")
    if not path.exists():
        raise DataError(f"{path} does not exist; check the path")
    file = InputFile(path, options, label)
    if not path.is_file():
        raise DataError(f"{file.name} is not a regular file; pipe it in and read it with - in place of the path")
    if path.stat().st_size == 0:
        raise DataError(f"{file.name} is empty; expected one interaction per line or row")
    format = format or options.format
    try:
        reader = reader_by_suffix(path) if format is None else reader_by_name(format)
        if reader is None and file.packing == ".zip":
            reader = reader_by_suffix(Path(file.member))
        if reader is None:
            known = " ".join(READER_OF_SUFFIX)
            raise DataError(
                f"{file.name}: unknown extension {path.suffix!r}; expected {known}, or state format=... (--format)"
            )
        if reader.name == "parquet" and file.packing:
            raise DataError(f"{file.name} is a packed Parquet file; unpack it first")
        if whole or reader.stream is None:
            yield reader.read(file, named)
        else:
            yield from reader.stream(file, named)
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
