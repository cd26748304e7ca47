"""Tables of text with a delimiter between columns: csv, tsv and RecBole's `.inter` and `.item`."""

import csv
import io
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rankformer.data.readers.base import BLOCK_BYTES, ENCODED, BadRows, RawTable, clip, is_needed, with_unread
from rankformer.data.readers.input_file import InputFile
from rankformer.data.readers.options import KNOWN_NAMES
from rankformer.errors import DataError

Records = Callable[..., Iterator[tuple[int, list[str]]]]
DELIMITERS = (",", ";", "\t", "|")
SAMPLE_ROWS = 20
_NUMBERS = {*KNOWN_NAMES["time"], *KNOWN_NAMES["weight"]}
UNIT_SEPARATOR = "\x1f"  # stands in for a delimiter that the parser cannot take


def tables(
    file: InputFile, named: Collection[str] | None, whole: bool, *, delimiter: str, typed: bool = False
) -> Iterator[RawTable]:
    """Yield every column as strings, `whole` or in tables of a few megabytes each, which share their `bad`.

    `typed` is RecBole's form, whose header says `name:type` and whose quotes are text.
    """
    delimiter = file.options.delimiter or (delimiter if typed else _detect_delimiter(file, delimiter))
    replaced = _replaced(delimiter)
    quoted = not typed and not replaced
    records = partial(_records, file, delimiter, quoted)
    first_rows = [cells for _line, cells in islice(records(), 2)]
    if not first_rows:
        raise DataError(f"{file.name} holds only blank lines; expected one row per interaction")
    header = file.options.header
    has_header = typed or (_has_header(file, first_rows, named) if header is None else header)
    if has_header and len(first_rows) == 1:
        raise DataError(f"{file.name} has a header but no rows; expected one row per interaction")
    names = _names_without_types(file, first_rows[0]) if typed else first_rows[0]
    if not has_header:
        names = [str(position) for position in range(len(names))]
        named = None if named is None else (*named, "0", "1")
    # Positions as names let a header have a name twice; the real names are put on afterwards.
    positions = [f"c{position}" for position in range(len(names))]
    # Ids and titles come back again and again, so that each is kept once; times and weights become numbers anyway.
    kinds = {
        position: pa.string() if name.strip().lower() in _NUMBERS else ENCODED
        for position, name in zip(positions, names, strict=True)
        if is_needed(name, named)
    }
    bad = BadRows()

    def leave_out(row: pyarrow.csv.InvalidRow) -> str:
        found = f"{row.actual_columns} fields where {row.expected_columns} were expected"
        bad.add("with another number of fields", f"{file.name} row {row.number}: {found}: {clip(row.text, 200)!r}")
        bad.records.append(row.number - 1 - has_header)
        return "skip"

    def record_of(row: int) -> int:
        for record in bad.records:  # in ascending order
            row += record <= row
        return row

    def locate(begin: int, row: int) -> str:
        line, _cells = next(islice(records(), record_of(begin + row) + has_header, None))
        return f"line {line}"

    def without_headers(table: pa.Table, begin: int) -> pa.Table:
        again = _repeated_header(table, dict(zip(positions, names, strict=True))) if has_header and kinds else []
        if not again:
            return table
        found = f"{locate(begin, again[0])} repeats the header, as where files were joined"
        if not skip:
            raise DataError(f"{file.name}: {found}; drop such lines, or leave them out with --on-bad-row skip")
        bad.add("that repeat the header", f"{file.name} {found}", len(again))
        bad.records = sorted([*bad.records, *(record_of(begin + row) for row in again)])
        kept = np.ones(table.num_rows, bool)
        kept[again] = False
        # Encoded anew: a name that is no value any more would make all values strings.
        plain = pa.schema([(name, pa.string()) for name in table.column_names])
        return table.filter(pa.array(kept)).cast(plain).cast(table.schema)

    if quoted and file.survey.quotes % 2:
        for _record in records(strict=True):  # refuses a quote that is never closed
            pass
    skip, rows = file.options.on_bad_row == "skip", 0
    options = (
        # Rows are numbered only where one thread reads them.
        pyarrow.csv.ReadOptions(
            block_size=BLOCK_BYTES,
            column_names=positions,
            skip_rows_after_names=int(has_header),
            use_threads=not skip,
        ),
        pyarrow.csv.ParseOptions(
            delimiter=UNIT_SEPARATOR if replaced else delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
            invalid_row_handler=leave_out if skip else None,
        ),
        pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=list(kinds) or positions[:1]),
    )
    with file.open(replaced) as stream:
        try:
            blocks = [pyarrow.csv.read_csv(stream, *options)] if whole else pyarrow.csv.open_csv(stream, *options)
            for block in blocks:
                part = without_headers(pa.table(block), rows)
                if part.num_rows:
                    table = with_unread(part, positions).rename_columns(names)
                    yield RawTable(table, file.name, partial(locate, rows), True, has_header, file.options, bad)
                    rows += part.num_rows
        except pa.ArrowInvalid as problem:
            raise _explained(file, records, delimiter, len(names), problem) from None
    if not rows:
        raise DataError(f"{file.name} has no row with {len(names)} fields; state what separates them with --delimiter")


def _repeated_header(table: pa.Table, names: dict[str, str]) -> list[int]:
    """Return the rows in which every column that was read holds its own name."""
    repeated: Any = True
    for position, column in zip(table.column_names, table.columns, strict=True):
        written = pa.array([names[position], "\ufeff" + names[position]])  # a byte order mark may come along
        if pa.types.is_dictionary(column.type):
            parts = [pc.take(pc.is_in(part.dictionary, written), part.indices) for part in column.chunks]
            column = pa.chunked_array(parts, pa.bool_())
        else:
            column = pc.is_in(column, written)
        repeated = column if repeated is True else pc.and_(repeated, column)
        if not pc.any(repeated).as_py():
            return []
    return np.flatnonzero(repeated.to_numpy()).tolist()


def _replaced(delimiter: str) -> str:
    """Return a delimiter that the parser cannot take, of several letters or beyond ASCII, and nothing for any other."""
    return "" if len(delimiter) == 1 and delimiter.isascii() else delimiter


def _detect_delimiter(file: InputFile, default: str) -> str:
    """Return the delimiter that the first rows agree on: the default unless another explains them better.

    Another does if the default finds one column only, or if it alone gives columns with known names.
    """
    best, merit = default, (-1, False, False)
    for delimiter in (default, *(each for each in DELIMITERS if each != default)):
        try:
            rows = [cells for _line, cells in islice(_records(file, delimiter, True), SAMPLE_ROWS)]
        except DataError:
            continue
        if not rows or len(rows[0]) < 2:
            continue
        cells = {cell.strip().lower() for cell in rows[0]}
        known = sum(bool(cells & set(KNOWN_NAMES[role])) for role in ("user", "item"))
        found = (known, len({len(row) for row in rows}) == 1, delimiter == default)
        if found > merit:
            best, merit = delimiter, found
    return best


def _records(file: InputFile, delimiter: str, quoted: bool, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each record: the slow way, for the first lines and to explain errors.

    With `strict`, a file that ends inside a quoted cell is refused, since all after the quote was read as that cell.
    """
    # The csv module's own limit of 131,072 letters is for the whole process, so it is put back afterwards.
    limit = csv.field_size_limit(BLOCK_BYTES)
    last, begin = 0, 1
    replaced = _replaced(delimiter)
    try:
        with file.open(replaced) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            reader = csv.reader(
                text, delimiter=UNIT_SEPARATOR if replaced else delimiter, quoting=quoting, strict=strict
            )
            for row in reader:
                if row:
                    yield begin, row
                    last = begin
                begin = reader.line_num + 1
    except csv.Error as problem:
        if "unexpected end of data" in str(problem):
            found = f"a quote opened after line {last} is never closed; close it, or double it inside a cell"
            raise DataError(f"{file.name}: {found}") from None
        if not strict:  # which would also refuse a stray quote inside a cell
            found = f"{file.name} is not a table: {problem}; expected rows separated by {delimiter!r}"
            raise DataError(f"{found}, or another --delimiter") from None
    finally:
        csv.field_size_limit(limit)


def _explained(file: InputFile, records: Records, delimiter: str, expected: int, problem: Exception) -> DataError:
    """Return what is wrong with the first line that has another number of fields, or else Arrow's message."""
    found = clip(str(problem), 200)
    for line, cells in records():
        if len(cells) != expected:
            text = repr(clip(delimiter.join(cells)))
            found = f"line {line} has {len(cells)} fields where {expected} were expected: {text}; fix or drop it"
            found += ", or leave such rows out with --on-bad-row skip"
            break
    return DataError(f"{file.name}: {found}")


def _has_header(file: InputFile, rows: list[list[str]], named: Collection[str] | None) -> bool:
    first = [cell.strip().lower() for cell in rows[0]]
    if any(name in rows[0] for name in named or () if not name.isdecimal()):
        return True
    if any(cell in KNOWN_NAMES[role] for cell in first for role in ("user", "item")):
        return True
    if any(map(is_number, first)) or any(name.isdecimal() for name in named or ()):
        return False
    if len(rows) > 1 and any(map(is_number, rows[1])):
        return True  # words above numbers
    if first[0].startswith("{"):
        raise DataError(f"{file.name} holds JSON; say so with --format jsonl")
    if first[0].startswith("sep="):
        raise DataError(f"{file.name}: line 1 is a spreadsheet's note on what separates columns (sep=); drop that line")
    raise DataError(
        f"{file.name}: cannot tell whether the first line ({clip(', '.join(rows[0]))}) is a header; say so with "
        "header=True or False (--header, --no-header), or name the columns with user=... and item=... (--user-column)"
        + ("" if len(first) > 1 else "; it has one column: state what separates columns with --delimiter")
    )


def is_number(text: str) -> bool:
    """Return whether text is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names_without_types(file: InputFile, cells: list[str]) -> list[str]:
    for cell in cells:
        if ":" not in cell:
            raise DataError(
                f"{file.name} line 1: expected a header such as user_id:token<TAB>item_id:token, found {clip(cell)!r}; "
                'add it, or read the file with format="tsv" (--format tsv)'
            )
    return [cell.rsplit(":", 1)[0] for cell in cells]
