"""Tables separated by commas or tabs: csv, tsv and RecBole's `.inter`."""

import csv
import io
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv

from rankformer.data.readers.base import (
    BLOCK_BYTES,
    KNOWN_NAMES,
    RawTable,
    clip,
    is_needed,
    not_utf8,
    open_bytes,
    with_unread,
)
from rankformer.errors import DataError

Records = Callable[..., Iterator[tuple[int, list[str]]]]


def read(path: Path, named: Collection[str], header: bool | None, *, delimiter: str, typed: bool = False) -> RawTable:
    """Return every column as strings; `typed` is `.inter`, whose header says `name:type` and whose quotes are text."""
    records = partial(_records, path, delimiter, not typed)
    first_rows = [cells for _line, cells in islice(records(), 2)]
    if not first_rows:
        raise DataError(f"{path.name} holds only blank lines; expected one row per interaction")
    has_header = typed or (_has_header(path, first_rows, named) if header is None else header)
    if has_header and len(first_rows) == 1:
        raise DataError(f"{path.name} has a header but no rows; expected one row per interaction")
    names = _names_without_types(path, first_rows[0]) if typed else first_rows[0]
    if not has_header:
        names = [str(position) for position in range(len(names))]
        named = (*named, "0", "1")
    # Positions as names let a header have a name twice; the real names are put on afterwards.
    positions = [f"c{position}" for position in range(len(names))]
    needed = [position for position, name in zip(positions, names, strict=True) if is_needed(name, named)]
    with open_bytes(path) as stream:
        try:
            table = pyarrow.csv.read_csv(
                stream,
                pyarrow.csv.ReadOptions(
                    block_size=BLOCK_BYTES, column_names=positions, skip_rows_after_names=int(has_header)
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=delimiter, quote_char=False if typed else '"', newlines_in_values=not typed
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(needed, pa.string()), include_columns=needed or positions
                ),
            )
        except pa.ArrowInvalid as problem:
            raise _explained(path, records, delimiter, len(names), problem) from None
    if not typed and _count_bytes(path, b'"') % 2:
        for _record in records(strict=True):  # refuses a quote that is never closed
            pass

    def locate(row: int) -> str:
        line, _cells = next(islice(records(), row + has_header, None))
        return f"line {line}"

    table = with_unread(table, positions).rename_columns(names)
    return RawTable(table, path.name, locate, is_text=True, has_header=has_header)


def _records(path: Path, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each record: the slow way, for the first lines and to explain errors.

    With `strict`, a file that ends inside a quoted cell is refused, since all after the quote was read as that cell.
    """
    # The csv module's own limit of 131,072 letters is for the whole process, so it is put back afterwards.
    limit = csv.field_size_limit(BLOCK_BYTES)
    last, begin = 0, 1
    try:
        with open_bytes(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            reader = csv.reader(text, delimiter=delimiter, quoting=quoting, strict=strict)
            for row in reader:
                if row:
                    yield begin, row
                    last = begin
                begin = reader.line_num + 1
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    except csv.Error as problem:
        if "unexpected end of data" in str(problem):
            found = f"a quote opened after line {last} is never closed; close it, or double it inside a cell"
            raise DataError(f"{path.name}: {found}") from None
        if not strict:  # which would also refuse a stray quote inside a cell
            raise DataError(
                f"{path.name} is not a table: {problem}; expected rows separated by {delimiter!r}"
            ) from None
    finally:
        csv.field_size_limit(limit)


def _explained(path: Path, records: Records, delimiter: str, expected: int, problem: Exception) -> DataError:
    """Return what is wrong with the first line that has another number of fields, or else Arrow's message."""
    found = clip(str(problem), 200)
    for line, cells in records():
        if len(cells) != expected:
            text = repr(clip(delimiter.join(cells)))
            found = f"line {line} has {len(cells)} fields where {expected} were expected: {text}; fix or drop it"
            break
    return DataError(f"{path.name}: {found}")


def _count_bytes(path: Path, byte: bytes) -> int:
    with open_bytes(path) as stream:
        return sum(block.count(byte) for block in iter(partial(stream.read, BLOCK_BYTES), b""))


def _has_header(path: Path, rows: list[list[str]], named: Collection[str]) -> bool:
    first = [cell.strip().lower() for cell in rows[0]]
    if any(name in rows[0] for name in named if not name.isdecimal()):
        return True
    if any(cell in KNOWN_NAMES[role] for cell in first for role in ("user", "item")):
        return True
    if any(map(_is_number, first)) or any(name.isdecimal() for name in named):
        return False
    if len(rows) > 1 and any(map(_is_number, rows[1])):
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
