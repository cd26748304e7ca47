"""Tables separated by commas or tabs: csv, tsv and RecBole's `.inter`."""

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa
import pyarrow.csv

from rankformer.data.columns import KNOWN_NAMES, may_be_wanted, with_unread
from rankformer.data.tables import RawTable, clip
from rankformer.errors import DataError

# A record longer than a block cannot be parsed, so a block holds more than any sensible id or title.
BLOCK_BYTES = 8 << 20


def read_delimited(path: Path, delimiter: str, header: bool | None, named: list[str], typed: bool = False) -> RawTable:
    """Return every column of the file as text.

    Args:
        path: the file, gzipped when its name ends in `.gz`.
        delimiter: one character.
        header: whether the first line names the columns; None looks at the first two lines.
        named: the columns that the caller named, which help to recognise a header.
        typed: whether this is an `.inter` file, whose header says `name:type` and whose quotes mean nothing.
    """
    quoted = not typed
    first_rows = _first_rows(path, delimiter, quoted)
    has_header = _has_header(path, first_rows, header, named) if not typed else True
    if has_header and len(first_rows) == 1:
        raise DataError(f"{path.name} has a header but no rows; expected one row per interaction")
    names = first_rows[0] if has_header else [str(position) for position in range(len(first_rows[0]))]
    if typed:
        names = _names_without_types(path, names)
    wanted = [*named, "0", "1"] if not has_header else named
    table = _read_table(path, delimiter, quoted, names, wanted, skip=has_header)

    def locate(row: int) -> str:
        return f"line {_line_of_row(path, delimiter, quoted, row + has_header)}"

    return RawTable(table, path.name, locate, is_text=True, has_header=has_header)


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Yield the file's bytes, unpacked when its name ends in `.gz`."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as stream:
            yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError) as problem:
        raise DataError(f"{path.name} is not a whole gzip file ({problem}); fetch or pack it again") from None


def not_utf8(path: Path) -> str:
    """Return the sentence for a file that is not UTF-8, with the first line at fault."""
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f"line {number} is not UTF-8; save the file as UTF-8"
    return "the text is not UTF-8; save the file as UTF-8"


def _read_table(path: Path, delimiter: str, quoted: bool, names: list[str], wanted: list[str], skip: bool) -> pa.Table:
    # Made-up names let a header repeat a name; the real ones go on afterwards.
    positions = [f"c{position}" for position in range(len(names))]
    chosen = [position for position, name in zip(positions, names, strict=True) if may_be_wanted(name, wanted)]
    read = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=positions, skip_rows_after_names=int(skip))
    parse = pyarrow.csv.ParseOptions(
        delimiter=delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted, ignore_empty_lines=True
    )
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(chosen, pa.string()), include_columns=chosen or positions, strings_can_be_null=False
    )
    with open_bytes(path) as stream:
        try:
            table = pyarrow.csv.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid as problem:
            found = _find_bad_line(path, delimiter, quoted, len(names)) or clip(str(problem), 200)
            raise DataError(f"{path.name}: {found}") from None
    if quoted:
        _refuse_open_quote(path, delimiter)
    return with_unread(table, positions).rename_columns(names)


def _refuse_open_quote(path: Path, delimiter: str) -> None:
    """Refuse a file that ends inside a quoted cell: what follows the quote was read as one cell, up to the end."""
    with open_bytes(path) as stream:
        if sum(block.count(b'"') for block in iter(lambda: stream.read(BLOCK_BYTES), b"")) % 2 == 0:
            return
    last_whole = 0
    try:
        for line, _cells in _records(path, delimiter, quoted=True, strict=True):
            last_whole = line
    except csv.Error as problem:
        if "unexpected end of data" in str(problem):
            found = f"a quote opened after line {last_whole} is never closed; close it, or double it inside a cell"
            raise DataError(f"{path.name}: {found}") from None


def _first_rows(path: Path, delimiter: str, quoted: bool) -> list[list[str]]:
    rows = []
    try:
        for _line, row in _records(path, delimiter, quoted):
            rows.append(row)
            if len(rows) == 2:
                break
    except UnicodeDecodeError:
        raise DataError(f"{path.name}: {not_utf8(path)}") from None
    except csv.Error as problem:
        raise DataError(f"{path.name} is not a table: {problem}; expected rows separated by {delimiter!r}") from None
    if not rows:
        raise DataError(f"{path.name} holds only blank lines; expected one row per interaction")
    return rows


def _has_header(path: Path, rows: list[list[str]], stated: bool | None, named: list[str]) -> bool:
    if stated is not None:
        return stated
    first = [cell.strip().lower() for cell in rows[0]]
    if any(name in rows[0] for name in named if not name.isdecimal()):
        return True
    if any(cell in KNOWN_NAMES[role] for cell in first for role in ("user", "item")):
        return True
    if any(_is_number(cell) for cell in first) or any(name.isdecimal() for name in named):
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


def _records(path: Path, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each record: the slow reader, for the first lines and to explain errors."""
    # The csv module's own limit of 131,072 letters is for the whole process, so it is put back afterwards.
    limit = csv.field_size_limit(BLOCK_BYTES)
    try:
        with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            reader = csv.reader(text, delimiter=delimiter, quoting=quoting, strict=strict)
            begin = 1
            for row in reader:
                if row:
                    yield begin, row
                begin = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _line_of_row(path: Path, delimiter: str, quoted: bool, wanted: int) -> int:
    try:
        for row, (line, _cells) in enumerate(_records(path, delimiter, quoted)):
            if row == wanted:
                return line
    except csv.Error:
        pass  # a cell beyond the csv module's limit: counting rows is the best that is left
    return wanted + 1


def _find_bad_line(path: Path, delimiter: str, quoted: bool, expected: int) -> str | None:
    try:
        for line, cells in _records(path, delimiter, quoted):
            if len(cells) != expected:
                text = clip(delimiter.join(cells))
                return f"line {line} has {len(cells)} fields where {expected} were expected: {text!r}; mend or drop it"
    except UnicodeDecodeError:
        return not_utf8(path)
    except csv.Error:
        return None
    return None
