"""Lines of tokens separated by spaces or tabs: `user item` lines and LightGCN's adjacency lists.

pairs      `user item`, `user item weight` or `user item weight time`
adjacency  `user item item ...`, each user on one line, integers only; a user alone on a line has no items
txt        told from the lines: two tokens on each are pairs, ragged lines are adjacency lists, and three or four
           tokens on every line could be either, so that has to be stated
"""

from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.readers.base import BLOCK_BYTES, RawTable, Reader, ReadOptions, clip, not_utf8, open_bytes
from rankformer.errors import DataError

PAIR_COLUMNS = ("user", "item", "weight", "time")


@dataclass(frozen=True)
class _TokenLines:
    """All tokens of a file in order, and of each line that has any: how many, and the number of the line."""

    path: Path
    tokens: pa.ChunkedArray
    sizes: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """The position of each line's first token."""
        starts: NDArray[np.int64] = np.cumsum(self.sizes) - self.sizes
        return starts

    def quote(self, line: int) -> str:
        """Return the tokens of a line, counted from 0, for an error message."""
        return repr(clip(" ".join(self.tokens.slice(self.starts[line], min(self.sizes[line], 40)).to_pylist())))

    def table(self, columns: dict[str, pa.ChunkedArray], line_numbers: NDArray[np.int64]) -> RawTable:
        """Return columns of which each row stands on the line of that number."""
        return RawTable(pa.table(columns), self.path.name, lambda row: f"line {line_numbers[row]}", is_text=True)


def _read_txt(lines: _TokenLines) -> RawTable:
    first = lines.sizes[0]
    if (lines.sizes == first).all() and first in (3, 4):
        raise DataError(
            f'{lines.path.name} has {first} fields on every line: state format="pairs" if they are '
            f'{" ".join(PAIR_COLUMNS[:first])}, or format="adjacency" if they are a user and its items'
        )
    if (lines.sizes == 2).all():
        return _read_pairs(lines)
    users = lines.tokens.take(pa.array(lines.starts))
    if pc.count_distinct(users).as_py() < len(users):
        # Adjacency lists have one line per user, so this is more likely a file of pairs with a damaged line.
        odd = int(np.flatnonzero(lines.sizes != 2)[0])
        raise DataError(
            f"{lines.path.name} line {lines.numbers[odd]} has {lines.sizes[odd]} fields where pairs have two, and "
            "users occur more than once, which they do not in adjacency lists: "
            f'{lines.quote(odd)}; fix the line or state format="adjacency"'
        )
    return _read_adjacency(lines)


def _read_pairs(lines: _TokenLines) -> RawTable:
    size = int(lines.sizes[0])
    expected = size if 2 <= size <= len(PAIR_COLUMNS) else 2
    wrong = np.flatnonzero(lines.sizes != expected)
    if len(wrong):
        raise DataError(
            f"{lines.path.name} line {lines.numbers[wrong[0]]} has {lines.sizes[wrong[0]]} fields where {expected} "
            f"were expected: {lines.quote(int(wrong[0]))}; fix or drop it"
        )
    columns = {PAIR_COLUMNS[field]: lines.tokens.take(pa.array(lines.starts + field)) for field in range(size)}
    return lines.table(columns, lines.numbers)


def _read_adjacency(lines: _TokenLines) -> RawTable:
    good = pc.match_substring_regex(lines.tokens, "^[0-9]+$")
    if not pc.all(good).as_py():
        position = pc.index(good, False).as_py()
        line = int(np.searchsorted(lines.starts, position, side="right")) - 1
        raise DataError(
            f"{lines.path.name} line {lines.numbers[line]}: {clip(lines.tokens[position].as_py())!r} is not an integer "
            f"from 0; adjacency lists are `user item item ...` and pairs have two fields a line: {lines.quote(line)}"
        )
    is_item = np.ones(len(lines.tokens), dtype=bool)
    is_item[lines.starts] = False
    if not is_item.any():
        raise DataError(f"{lines.path.name} has users but no items; expected `user item item ...` on each line")
    per_user = lines.sizes - 1
    users = lines.tokens.take(pa.array(np.repeat(lines.starts, per_user)))
    columns = {"user": users, "item": lines.tokens.filter(pa.array(is_item))}
    return lines.table(columns, np.repeat(lines.numbers, per_user))


def _tokenize(path: Path) -> _TokenLines:
    chunks: list[pa.Array] = []
    counts = [np.empty(0, dtype=np.int64)]
    with open_bytes(path) as stream:
        while block := stream.read(BLOCK_BYTES) + stream.readline():  # whole lines
            # A byte order mark is not part of the first id.
            tokens, per_line = _tokenize_block(block if chunks else block.removeprefix(BOM_UTF8))
            try:
                tokens.validate(full=True)
            except pa.ArrowInvalid:
                raise not_utf8(path) from None
            chunks.append(tokens)
            counts.append(per_line)
    sizes = np.concatenate(counts)
    filled = np.flatnonzero(sizes)
    if not len(filled):
        raise DataError(f"{path.name} holds only blank lines; expected `user item` on each line")
    return _TokenLines(path, pa.chunked_array(chunks, type=pa.string()), sizes[filled], filled + 1)


def _tokenize_block(block: bytes) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the tokens of some whole lines and their number per line, without a Python loop over lines."""
    data = np.frombuffer(block, dtype=np.uint8)
    space = (data == 32) | ((data >= 9) & (data <= 13))
    edge = np.diff(np.concatenate(([True], space, [True])).astype(np.int8))
    starts, ends = np.flatnonzero(edge == -1), np.flatnonzero(edge == 1)
    offsets = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int32)
    letters = np.ascontiguousarray(data[~space])
    tokens = pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(letters))
    line_ends = np.flatnonzero(data == 10)
    if not block.endswith(b"\n"):
        line_ends = np.append(line_ends, len(data))
    return tokens, np.diff(np.searchsorted(starts, line_ends), prepend=0)


def _read(path: Path, _options: ReadOptions, *, parse: Callable[[_TokenLines], RawTable]) -> RawTable:
    return parse(_tokenize(path))


READERS = (
    Reader("txt", (".txt",), partial(_read, parse=_read_txt)),
    Reader("pairs", (), partial(_read, parse=_read_pairs)),
    Reader("adjacency", (), partial(_read, parse=_read_adjacency)),
)
