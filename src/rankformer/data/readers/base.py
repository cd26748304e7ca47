"""What the readers share: `ReadOptions`, the `InputFile` they are given and the `RawTable` they return."""

import codecs
import errno
import gzip
import io
import logging
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, field_validator

from rankformer.errors import ConfigError, DataError
from rankformer.files import write_bytes_atomic
from rankformer.settings import Settings

logger = logging.getLogger("rankformer.data")

# A record longer than a block cannot be parsed, so a block holds more than any sensible id or title.
BLOCK_BYTES = 8 << 20
# Packed files may unpack to this much whatever their ratio, since a small file of zeros harms nobody.
FREE_BYTES = 64 << 20
_NO_STRINGS = pa.array([], pa.string())
PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\x03\x04"}  # by how the bytes begin
SHOWN_BAD_ROWS = 100
DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
ENCODED = pa.dictionary(pa.int32(), pa.string())  # a distinct string once, and four bytes per row

# Column names tried, in this order and in any case, when the caller names no column.
KNOWN_NAMES: dict[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "uid", "user_idx", "customer", "customer_id", "visitor_id", "visitorid"),
    "item": (
        *("item", "item_id", "itemid", "iid", "item_idx", "product", "product_id", "productid", "sku", "asin"),
        *("movie_id", "movieid", "business_id", "article_id", "book_id", "track_id"),
    ),
    "time": ("time", "timestamp", "ts", "datetime", "date", "event_time", "created_at"),
    "weight": ("weight", "rating", "strength", "count", "plays"),
    "title": ("title", "item_title", "item_name"),
}
ROLES = (*KNOWN_NAMES, "event")  # an event column is never guessed


class ReadOptions(Settings):
    """How to read what DATA names, and how much of it at most."""

    format: str | None = None
    """Format of the files when their extension does not say."""
    header: bool | None = None
    """Whether csv and tsv files start with column names; None finds out."""
    delimiter: str | None = Field(default=None, min_length=1)
    """What separates the columns of csv and tsv files; None finds out among , ; | and tab."""
    encoding: str | None = None
    """Encoding of text files; None finds out among UTF-8, UTF-16 and cp1252 (Western European)."""
    time_format: str | None = None
    """How times are written, such as %d.%m.%Y %H:%M; None finds out."""
    on_bad_row: Literal["stop", "skip"] = "stop"
    """Whether a row that cannot be used ends the reading or is left out."""
    bad_rows: str | None = Field(default=None, exclude=True)
    """File for the counts and the first examples of the rows left out."""
    event_weights: dict[Annotated[str, BeforeValidator(str)], float] | None = None
    """Weight of each event, of those that are not listed by the name other; 0 drops them."""
    query: str | None = None
    """SQL that selects the interactions from a database."""
    table: str | None = None
    """Table of a database that holds the interactions."""
    max_rows: int = Field(default=200_000_000, ge=1)
    """Most rows that are read."""
    max_line_bytes: int = Field(default=16 << 20, ge=1, le=1 << 30)
    """Longest line of a text file."""
    max_expansion: float = Field(default=200.0, ge=1)
    """How many times its size a packed file may unpack to (64 MB are always allowed)."""

    @field_validator("delimiter")
    @classmethod
    def _delimiter_by_word(cls, delimiter: str | None) -> str | None:
        if delimiter is not None and set(delimiter) & set('"\r\n\0'):
            raise ConfigError(f"delimiter={delimiter!r}: quotes and line ends cannot separate columns; use another")
        return DELIMITER_WORDS.get(delimiter or "", delimiter)

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, encoding: str | None) -> str | None:
        try:
            if encoding is not None:
                "".encode(encoding)
                encoding = codecs.lookup(encoding).name
        except (LookupError, ValueError):
            raise ConfigError(
                f"encoding={encoding!r} is unknown; expected utf-8, latin-1, utf-16 or the like"
            ) from None
        return None if encoding == "utf-8" else encoding


class BadRows:
    """The rows that were left out: how many for each reason, and the first of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: list[str] = []
        self.records: list[int] = []  # of those that the parser left out, counted from 0 without the header

    def add(self, reason: str, example: str = "", count: int = 1) -> None:
        """Count rows left out for a reason; the example says where and what."""
        self.counts[reason] += count
        if example and len(self.examples) < SHOWN_BAD_ROWS:
            self.examples.append(example)

    def report(self, name: str, kept: int, path: str | None) -> None:
        """Say how many rows were left out and why, and write the examples to a file if one is named."""
        if not (total := self.counts.total()):
            return
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())
        line = f"{name}: skipped {total:,} of {kept + total:,} rows ({reasons})"
        if path is not None:
            write_bytes_atomic(Path(path), ("\n".join([line, *self.examples]) + "\n").encode("utf-8", "replace"))
        where = "name a file for them with --bad-rows" if path is None else f"examples in {path}"
        logger.warning("%s; the first: %s; %s", line, self.examples[0] if self.examples else "unknown", where)


_DEFAULTS = ReadOptions()


@dataclass(frozen=True)
class RawTable:
    """A table as read.

    Attributes:
        table: the columns; every one holds strings when `is_text`.
        name: what to call the table in an error, usually the file name.
        locate: where a row is for a person, such as "line 7" (rows count from 0).
        is_text: whether values came as strings, so that numbers among them have to be recognised.
        has_header: whether the column names are the data's own and not positions.
        options: how it was read.
        bad: the rows that were left out.
    """

    table: pa.Table
    name: str = "table"
    locate: Callable[[int], str] = lambda row: f"row {row + 1}"
    is_text: bool = False
    has_header: bool = True
    options: ReadOptions = _DEFAULTS
    bad: BadRows = field(default_factory=BadRows)


# What files that are no text begin with, in lower case, and what is said of them.
NOT_TEXT = {
    b"par1": "is a Parquet file; say so with --format parquet",
    b"sqlite format 3": "is an SQLite database; name it as sqlite:FILE, with --table",
    b"%pdf-": "is a PDF document; save the data as csv",
    b"\xd0\xcf\x11\xe0": "is an office document, such as an old Excel workbook; save it as csv",
    b"<!doctype": "is a web page, perhaps the error of a download; fetch the file again",
    b"<html": "is a web page, perhaps the error of a download; fetch the file again",
    b"<?xml": "is an XML document; save the data as csv",
}


class Survey(NamedTuple):
    """What one pass over a text file found: its encoding, and the quotes in it."""

    encoding: str
    quotes: int


@dataclass(frozen=True)
class InputFile:
    """A file to read.

    Attributes:
        path: where it is.
        options: how to read it.
        label: what to call it in an error; by default its own name.
    """

    path: Path
    options: ReadOptions = _DEFAULTS
    label: str = ""

    @property
    def name(self) -> str:
        """What to call the file in an error."""
        return self.label or self.path.name

    @cached_property
    def packing(self) -> str:
        """How the file is packed (`.gz`, `.zst` or `.zip`), by its name or its first bytes; empty if it is not."""
        suffix = self.path.suffix.lower()
        if suffix in PACKED:
            return suffix
        with open(self.path, "rb") as stream:
            head = stream.read(4)
        return next((suffix for suffix, magic in PACKED.items() if head.startswith(magic)), "")

    @property
    def member(self) -> str:
        """Name of the one file in a zip archive; more or fewer are refused."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name for name in archive.namelist() if name[-1:] != "/" and not name.startswith("__MACOSX/")]
        except zipfile.BadZipFile as problem:
            raise DataError(f"{self.name} is not a whole zip file ({problem}); fetch or pack it again") from None
        if "[Content_Types].xml" in names:
            raise DataError(f"{self.name} is an office document, such as an Excel workbook; save it as csv")
        if len(names) != 1:
            listed = ", ".join(clip(name, 40) for name in names[:6]) + (", ..." if len(names) > 6 else "")
            raise DataError(f"{self.name} holds {len(names)} files ({listed}); unpack it and name one, or its folder")
        return names[0]

    def check_size(self, size: int) -> None:
        """Refuse more bytes than a compressed file of this size may unpack to."""
        if size > max(FREE_BYTES, self.options.max_expansion * self.path.stat().st_size):
            found = f"unpacks to more than {self.options.max_expansion:g} times its size"
            raise DataError(f"{self.name} {found}; raise the limit with --max-expansion if it is meant to")

    @cached_property
    def survey(self) -> Survey:
        """The encoding and the quotes, after a pass that also refuses what is larger than the options allow."""
        with self._unpacked() as stream:
            head = stream.read(4096)
        for begin, what in NOT_TEXT.items():
            if head.lstrip().lower().startswith(begin):
                raise DataError(f"{self.name} {what}")
        encoding = self.options.encoding or _encoding_by_head(head)
        try:
            with self._unpacked() as stream:
                return self._survey(_recoded(stream, encoding) if encoding else stream, encoding)
        except UnicodeError:
            raise not_utf8(self) from None

    def _survey(self, stream: IO[bytes], encoding: str) -> Survey:
        options, decoder = self.options, codecs.getincrementaldecoder("utf-8")()
        size = lines = length = quotes = 0
        western = _Western()
        for block in iter(partial(stream.read, BLOCK_BYTES), b""):
            size, lines, quotes = size + len(block), lines + block.count(b"\n"), quotes + block.count(b'"')
            first = block.find(b"\n")
            longest = length + (len(block) if first < 0 else first)
            length = longest if first < 0 else len(block) - block.rfind(b"\n") - 1
            if self.packing:
                self.check_size(size)
            if longest > options.max_line_bytes:
                found = f"line {lines - block.count(bytes([10])) + 1:,} is longer than {options.max_line_bytes:,} bytes"
                raise DataError(f"{self.name}: {found}; raise the limit with --max-line-bytes if it is meant to be")
            if lines > options.max_rows:
                found = f"has more than {options.max_rows:,} lines"
                raise DataError(f"{self.name} {found}; raise the limit with --max-rows if it is meant to")
            if not western.begun:
                try:
                    western.any_before |= not decoder.decode(block).isascii()
                except UnicodeDecodeError:
                    western.begun = True
            if western.begun:
                western.add(block)
        if not western.begun:
            decoder.decode(b"", final=True)
            return Survey(encoding or "utf-8", quotes)
        if not western.is_likely:
            raise not_utf8(self)
        logger.warning("%s is not UTF-8; it is read as cp1252 (Western European), --encoding states another", self.name)
        return Survey("cp1252", quotes)

    @contextmanager
    def open(self, delimiter: str = "") -> Iterator[IO[bytes]]:
        """Yield the text in UTF-8, unpacked; a delimiter is replaced by the unit separator, if one is given."""
        with self._unpacked() as stream:
            if self.survey.encoding != "utf-8" or delimiter:
                stream = _recoded(stream, self.survey.encoding, delimiter)
            yield stream

    @contextmanager
    def _unpacked(self) -> Iterator[IO[bytes]]:
        kind = self.packing[1:]
        try:
            if kind == "gz":
                with gzip.open(self.path, "rb") as unpacked:
                    yield unpacked  # type: ignore[misc]
            elif kind == "zst":
                with pa.OSFile(str(self.path)) as packed, pa.CompressedInputStream(packed, "zstd") as unpacked:
                    yield io.BufferedReader(unpacked)
            elif kind == "zip":
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as unpacked:
                    yield unpacked
            else:
                with open(self.path, "rb") as stream:
                    yield stream
        except (gzip.BadGzipFile, EOFError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as problem:
            raise DataError(
                f"{self.name} is not a whole {'gzip' if kind == 'gz' else kind} file ({clip(str(problem))}); "
                "fetch or pack it again"
            ) from None
        except OSError as problem:
            if not kind or problem.errno not in (None, errno.EINVAL):  # EINVAL: a seek that the file asked for
                raise
            raise DataError(f"{self.name} is not a whole {kind} file ({clip(str(problem))}); pack it again") from None
        except (RuntimeError, NotImplementedError) as problem:
            if kind != "zip":
                raise
            raise DataError(f"{self.name} cannot be unpacked ({clip(str(problem))}); unpack it yourself") from None


class _Western:
    """Whether bytes that are not UTF-8 look like Western European text: single accented letters among others."""

    LETTERS = re.compile(rb"[\x80\x85\x91-\x97\xa0-\xd6\xd8-\xf6\xf8-\xfe]+")

    def __init__(self) -> None:
        self.begun = self.any_before = False
        self.runs = self.single = 0
        self.foreign = False

    def add(self, block: bytes) -> None:
        """Count the runs of bytes above ASCII."""
        runs = re.findall(rb"[\x80-\xff]+", block)
        self.runs += len(runs)
        self.single += sum(len(run) == 1 for run in runs)
        self.foreign = self.foreign or any(self.LETTERS.fullmatch(run) is None for run in runs)

    @property
    def is_likely(self) -> bool:
        """Whether nothing speaks against it; a Cyrillic or Chinese encoding has long runs."""
        return not self.foreign and not self.any_before and self.single >= 0.9 * self.runs


class _Recoded(io.RawIOBase):
    """Text of any encoding as UTF-8 bytes."""

    def __init__(self, stream: IO[bytes], encoding: str, delimiter: str) -> None:
        self.stream, self.decoder = stream, codecs.getincrementaldecoder(encoding)()
        self.delimiter, self.line, self.rest = delimiter, "", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        more = True
        while more and not self.rest:
            block = self.stream.read(1 << 20)
            more, text = bool(block), self.decoder.decode(block, final=not block)
            if self.delimiter:  # whole lines, so that no delimiter is cut
                text, end, self.line = (self.line + text).rpartition("\n") if more else (self.line + text, "", "")
                text = (text + end).replace(self.delimiter, "\x1f")
            self.rest = text.encode("utf-8", "surrogatepass")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def _recoded(stream: IO[bytes], encoding: str, delimiter: str = "") -> IO[bytes]:
    return io.BufferedReader(_Recoded(stream, encoding, delimiter), 1 << 20)


def _encoding_by_head(head: bytes) -> str:
    """Return the UTF-16 that a file begins with, or nothing: by its mark, or by the zeros beside plain letters."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in head:
        return "utf-16"
    for encoding, zeros, letters in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if len(head) >= 4 and zeros.count(0) > 0.7 * len(zeros) and letters.count(0) < 0.1 * len(letters):
            return encoding
    return ""


def is_needed(column: str, named: Collection[str] | None) -> bool:
    """Return whether a column could be one of a log's, given those that the caller named (None: all are needed)."""
    if named is None or column in named:
        return True
    return any(column.strip().lower() in known for known in KNOWN_NAMES.values())


def with_unread(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the table with an empty stand-in for each column that was not read, so that errors can list all names."""
    read = set(table.column_names)
    return pa.table([table[name] if name in read else pa.nulls(table.num_rows) for name in names], names=names)


class _Strings:
    """The distinct strings of a column so far."""

    def __init__(self) -> None:
        self.values = _NO_STRINGS

    def encode(self, column: pa.Array) -> pa.DictionaryArray:
        """Return each string by its position among the distinct ones, which are not attached: they will be more."""
        local = column if column.type == ENCODED else column.dictionary_encode()
        positions = pc.index_in(local.dictionary, value_set=self.values).fill_null(-1).to_numpy().copy()
        new = positions < 0
        positions[new] = np.arange(len(self.values), len(self.values) + new.sum())
        self.values = pa.concat_arrays([self.values, local.dictionary.filter(pa.array(new))])
        return pa.DictionaryArray.from_arrays(pa.array(positions).take(local.indices), _NO_STRINGS, safe=False)


def collect(batches: Iterable[pa.RecordBatch], name: str, options: ReadOptions) -> pa.Table:
    """Return batches as one table that holds each distinct string of a column once, and nothing of the batches."""
    strings: dict[str, _Strings] = {}
    tables: list[pa.Table] = []
    rows = 0
    try:
        for group in _grouped(batches):
            rows += sum(batch.num_rows for batch in group)
            check_rows(rows, name, options)
            columns = {}
            for position, (column, kind) in enumerate(zip(group[0].schema.names, group[0].schema.types, strict=True)):
                # Copied, since a view of one column would keep the whole batch in memory.
                values = pa.concat_arrays([batch.column(position) for batch in group] + [pa.array([], kind)])
                is_text = pa.types.is_string(kind) or kind == ENCODED
                columns[column] = strings.setdefault(column, _Strings()).encode(values) if is_text else values
            tables.append(pa.table(columns))
        table = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        raise DataError(f"{name} mixes types in a column: {clip(str(problem), 120)}; use one type") from None
    for column, found in strings.items():
        indices = pa.concat_arrays([chunk.indices for chunk in table[column].chunks])
        whole = pa.DictionaryArray.from_arrays(indices, found.values)
        table = table.set_column(table.schema.get_field_index(column), column, whole)
    return table


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches of one schema in groups of half a million rows or 64 MB, since every group costs a hash table."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        if group and batch.schema != group[0].schema:
            yield group
            group = []
        group.append(batch)
        if sum(each.num_rows for each in group) >= 1 << 19 or sum(each.nbytes for each in group) >= 64 << 20:
            yield group
            group = []
    if group:
        yield group


def check_rows(rows: int, name: str, options: ReadOptions) -> None:
    """Refuse more rows than the options allow."""
    if rows > options.max_rows:
        found = f"{name} has more than {options.max_rows:,} rows"
        raise DataError(f"{found}; raise the limit with --max-rows if it is meant to")


def clip(text: str, limit: int = 60) -> str:
    """Return a string on one line and short enough for an error message."""
    line = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def not_utf8(file: InputFile) -> DataError:
    """Return the error for a file that is not in the encoding it was read in, with the first line at fault."""
    if file.options.encoding:
        return DataError(f"{file.name} is not {file.options.encoding}; state another encoding with --encoding")
    with file._unpacked() as stream:
        bad = (number for number, line in enumerate(stream, 1) if line.decode(errors="ignore").encode() != line)
        number = next(bad, None)
    where = "the text" if number is None else f"line {number}"
    advice = "save the file as UTF-8, or state its encoding with --encoding, such as latin-1"
    return DataError(f"{file.name}: {where} is not UTF-8; {advice}")
