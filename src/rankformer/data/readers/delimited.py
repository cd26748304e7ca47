"""Tables separated by commas or tabs: csv, tsv and RecBole's `.inter`."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv

from rankformer.data.readers.base import (
    BLOCK_BYTES,
    KNOWN_NAMES,
    RawTable,
    Reader,
    ReadOptions,
    clip,
    not_utf8,
    open_bytes,
    with_unread,
)
from rankformer.errors import DataError


def _read(path: Path, options: ReadOptions, *, delimiter: str, typed: bool = False) -> RawTable:
    """Return every column as strings; `typed` is `.inter`, whose header says `name:type` and whose quotes are text."""
    file = _DelimitedFile(path, delimiter, quoted=not typed)
    first_rows = file.first_rows()
    has_header = typed or _has_header(path, first_rows, options)
    if has_header and len(first_rows) == 1:
        raise DataError(f"{path.name} has a header but no rows; expected one row per interaction")
    names = first_rows[0]
    if typed:
        names = _names_without_types(path, names)
    if not has_header:
        names = [str(position) for position in range(len(names))]
        options = ReadOptions((*options.named, "0", "1"))

    def locate(row: int) -> str:
        return f"line {file.line_of_row(row + has_header)}"

    return RawTable(file.read(names, options, has_header), path.name, locate, is_text=True, has_header=has_header)


@dataclass(frozen=True)
class _DelimitedFile:
    path: Path
    delimiter: str
    quoted: bool

    def read(self, names: list[str], options: ReadOptions, skip_first: bool) -> pa.Table:
        """Return the table under these column names, with the columns that are not needed left empty."""
        # Positions as names let a header have a name twice; the real names are put on afterwards.
        positions = [f"c{position}" for position in range(len(names))]
        needed = [position for position, name in zip(positions, names, strict=True) if options.needs(name)]
        read = pyarrow.csv.ReadOptions(
            block_size=BLOCK_BYTES, column_names=positions, skip_rows_after_names=int(skip_first)
        )
        parse = pyarrow.csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char='"' if self.quoted else False,
            newlines_in_values=self.quoted,
            ignore_empty_lines=True,
        )
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(needed, pa.string()),
            include_columns=needed or positions,
            strings_can_be_null=False,
        )
        with open_bytes(self.path) as stream:
            try:
                table = pyarrow.csv.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
            except pa.ArrowInvalid as problem:
                found = self._bad_line(len(names)) or clip(str(problem), 200)
                raise DataError(f"{self.path.name}: {found}") from None
        if self.quoted:
            self._check_quotes()
        return with_unread(table, positions).rename_columns(names)

    def first_rows(self) -> list[list[str]]:
        """Return the first two rows, or the only one."""
        rows = []
        try:
            for _line, row in self._records():
                rows.append(row)
                if len(rows) == 2:
                    break
        except UnicodeDecodeError:
            raise not_utf8(self.path) from None
        except csv.Error as problem:
            expected = f"rows separated by {self.delimiter!r}"
            raise DataError(f"{self.path.name} is not a table: {problem}; expected {expected}") from None
        if not rows:
            raise DataError(f"{self.path.name} holds only blank lines; expected one row per interaction")
        return rows

    def line_of_row(self, wanted: int) -> int:
        """Return the number of the line on which a row begins; rows count from 0, header included."""
        try:
            for row, (line, _cells) in enumerate(self._records()):
                if row == wanted:
                    return line
        except csv.Error:
            pass  # a cell beyond the csv module's limit: counting rows is the best that is left
        return wanted + 1

    def _records(self, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield (line number, cells) of each record: the slow way, for the first lines and to explain errors."""
        # The csv module's own limit of 131,072 letters is for the whole process, so it is put back afterwards.
        limit = csv.field_size_limit(BLOCK_BYTES)
        try:
            with open_bytes(self.path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
                reader = csv.reader(text, delimiter=self.delimiter, quoting=quoting, strict=strict)
                begin = 1
                for row in reader:
                    if row:
                        yield begin, row
                    begin = reader.line_num + 1
        finally:
            csv.field_size_limit(limit)

    def _bad_line(self, expected: int) -> str | None:
        """Return what is wrong with the first line that has another number of fields, if there is one."""
        try:
            for line, cells in self._records():
                if len(cells) != expected:
                    text = repr(clip(self.delimiter.join(cells)))
                    return f"line {line} has {len(cells)} fields where {expected} were expected: {text}; fix or drop it"
        except UnicodeDecodeError:
            raise not_utf8(self.path) from None
        except csv.Error:
            pass
        return None

    def _check_quotes(self) -> None:
        """Refuse a file that ends inside a quoted cell: what follows the quote was read as one cell, up to the end."""
        with open_bytes(self.path) as stream:
            if sum(block.count(b'"') for block in iter(lambda: stream.read(BLOCK_BYTES), b"")) % 2 == 0:
                return
        last_whole = 0
        try:
            for line, _cells in self._records(strict=True):
                last_whole = line
        except csv.Error as problem:
            if "unexpected end of data" in str(problem):
                found = f"a quote opened after line {last_whole} is never closed; close it, or double it inside a cell"
                raise DataError(f"{self.path.name}: {found}") from None


def _has_header(path: Path, rows: list[list[str]], options: ReadOptions) -> bool:
    if options.header is not None:
        return options.header
    first = [cell.strip().lower() for cell in rows[0]]
    if any(name in rows[0] for name in options.named if not name.isdecimal()):
        return True
    if any(cell in KNOWN_NAMES[role] for cell in first for role in ("user", "item")):
        return True
    if any(_is_number(cell) for cell in first) or any(name.isdecimal() for name in options.named):
        return False
    if len(rows) > 1 and any(_is_number(cell) for cell in rows[1]):
        return True  # words above numbers
    raise DataError(
        f"{path.name}: cannot tell whether the first line ({clip(', '.join(rows[0]))}) is a header; say so with "
        "header=True or False (--header, --no-header), or name the columns with user=... and item=... (--user-column)"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names_without_types(path: Path, cells: list[str]) -> list[str]:
    for cell in cells:
        if ":" not in cell:
            raise DataError(
                f"{path.name} line 1: expected a header such as user_id:token<TAB>item_id:token, found {clip(cell)!r}; "
                'add it, or read the file with format="tsv"'
            )
    return [cell.rsplit(":", 1)[0] for cell in cells]


READERS = (
    Reader("csv", (".csv",), partial(_read, delimiter=",")),
    Reader("tsv", (".tsv",), partial(_read, delimiter="\t")),
    Reader("inter", (".inter",), partial(_read, delimiter="\t", typed=True)),
)
