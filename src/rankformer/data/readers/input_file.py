"""`InputFile`: the bytes of a file, unpacked and in UTF-8, within the limits of the options."""

import codecs
import errno
import gzip
import io
import logging
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from rankformer.data.readers.base import BLOCK_BYTES, DEFAULTS, clip
from rankformer.data.readers.options import ReadOptions
from rankformer.errors import DataError

logger = logging.getLogger("rankformer.data")

# Packed files may unpack to this much whatever their ratio, since a small file of zeros harms nobody.
FREE_BYTES = 64 << 20
PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".zip": b"PK\x03\x04"}  # by how the bytes begin

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
    """A file to read; its `label` is what to call it in an error, by default its own name."""

    path: Path
    options: ReadOptions = DEFAULTS
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
                return self._survey(as_stream(_recoded(stream, encoding)) if encoding else stream, encoding)
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
                stream = as_stream(_recoded(stream, self.survey.encoding, delimiter))
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


class _Stream(io.RawIOBase):
    """Chunks of bytes as a stream."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.chunks, self.rest = filter(None, chunks), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.rest = self.rest or next(self.chunks, b"")
        size = min(len(buffer), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def as_stream(chunks: Iterable[bytes]) -> io.BufferedReader:
    """Return chunks of bytes as a stream."""
    return io.BufferedReader(_Stream(chunks), 1 << 20)


def _recoded(stream: IO[bytes], encoding: str, delimiter: str = "") -> Iterator[bytes]:
    """Yield text of any encoding as UTF-8, a delimiter replaced by the unit separator if one is given."""
    decoder, line = codecs.getincrementaldecoder(encoding)(), ""
    more = True
    while more:
        block = stream.read(1 << 20)
        more, text = bool(block), line + decoder.decode(block, final=not block)
        if delimiter:  # whole lines, so that no delimiter is cut
            text, end, line = text.rpartition("\n") if more else (text, "", "")
            text = (text + end).replace(delimiter, "\x1f")
        yield text.encode("utf-8", "surrogatepass")


def _encoding_by_head(head: bytes) -> str:
    """Return the UTF-16 that a file begins with, or nothing: by its mark, or by the zeros beside plain letters."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in head:
        return "utf-16"
    for encoding, zeros, letters in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if len(head) >= 4 and zeros.count(0) > 0.7 * len(zeros) and letters.count(0) < 0.1 * len(letters):
            return encoding
    return ""


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
