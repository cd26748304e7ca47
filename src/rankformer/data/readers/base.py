"""What the readers share: the `RawTable` they return, which columns are worth reading, and files as bytes."""

import gzip
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from rankformer.errors import DataError

# A record longer than a block cannot be parsed, so a block holds more than any sensible id or title.
BLOCK_BYTES = 8 << 20

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


@dataclass(frozen=True)
class RawTable:
    """A table as read.

    Attributes:
        table: the columns; every one holds strings when `is_text`.
        name: what to call the table in an error, usually the file name.
        locate: where a row is for a person, such as "line 7" (rows count from 0).
        is_text: whether values came as strings, so that numbers among them have to be recognised.
        has_header: whether the column names are the data's own and not positions.
    """

    table: pa.Table
    name: str = "table"
    locate: Callable[[int], str] = lambda row: f"row {row + 1}"
    is_text: bool = False
    has_header: bool = True


def is_needed(column: str, named: Collection[str]) -> bool:
    """Return whether a column could be one of a log's, given those that the caller named; others need not be read."""
    return column in named or any(column.strip().lower() in known for known in KNOWN_NAMES.values())


def with_unread(table: pa.Table, names: list[str]) -> pa.Table:
    """Return the table with an empty stand-in for each column that was not read, so that errors can list all names."""
    read = set(table.column_names)
    return pa.table([table[name] if name in read else pa.nulls(table.num_rows) for name in names], names=names)


def clip(text: str, limit: int = 60) -> str:
    """Return a string on one line and short enough for an error message."""
    line = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else line[: limit - 3] + "..."


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Yield the file's bytes, unpacked when its name ends in `.gz`."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as stream:
            yield stream  # type: ignore[misc]
    except (gzip.BadGzipFile, EOFError) as problem:
        raise DataError(f"{path.name} is not a whole gzip file ({problem}); fetch or pack it again") from None


def not_utf8(path: Path) -> DataError:
    """Return the error for a file that is not UTF-8, with the first line at fault."""
    with open_bytes(path) as stream:
        bad = (number for number, line in enumerate(stream, 1) if line.decode(errors="ignore").encode() != line)
        number = next(bad, None)
    where = "the text" if number is None else f"line {number}"
    return DataError(f"{path.name}: {where} is not UTF-8; save the file as UTF-8")
