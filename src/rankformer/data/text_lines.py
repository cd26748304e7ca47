"""Lines of tokens separated by spaces or tabs: `user item` pairs and LightGCN's adjacency lists."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.delimited import not_utf8, open_bytes
from rankformer.data.tables import RawTable, clip
from rankformer.errors import DataError

BLOCK_BYTES = 8 << 20
PAIR_COLUMNS = ("user", "item", "weight", "time")

LineFormat = Literal["pairs", "adjacency"]


@dataclass(frozen=True)
class TokenLines:
    """All tokens of a file in order, and how many stand on each line (0 on a blank one)."""

    path: Path
    tokens: pa.ChunkedArray
    counts: NDArray[np.int64]

    def text_of(self, line: int) -> str:
        """Return the tokens of a line (from 0) for an error message."""
        begin = int(self.counts[:line].sum())
        return clip(" ".join(self.tokens.slice(begin, min(int(self.counts[line]), 40)).to_pylist()))


def read_lines(path: Path, format: LineFormat | None) -> RawTable:
    """Return the pairs of a text file.

    When no format is stated it is told from the lines: two tokens on each is `user item` pairs; ragged lines are
    adjacency lists (`user item item ...`, each user on one line, whole numbers only). A user alone on a line has no
    items and gives no pair. Three or four tokens on every line could be either and must be stated: as pairs they are
    `user item weight` and `user item weight time`.
    """
    lines = _tokenize(path)
    if not lines.counts.any():
        raise DataError(f"{path.name} holds only blank lines; expected `user item` on each line")
    if format is None:
        format = _sniff(lines)
    return _read_pairs(lines) if format == "pairs" else _read_adjacency(lines)


def _sniff(lines: TokenLines) -> LineFormat:
    sizes = np.unique(lines.counts[lines.counts > 0])
    if len(sizes) == 1 and sizes[0] == 2:
        return "pairs"
    if len(sizes) == 1 and sizes[0] in (3, 4):
        raise DataError(
            f'{lines.path.name} has {sizes[0]} fields on every line: state format="pairs" if they are '
            f'{" ".join(PAIR_COLUMNS[: sizes[0]])}, or format="adjacency" if they are a user and its items'
        )
    users = lines.tokens.take(pa.array(_starts(lines)))
    if pc.count_distinct(users).as_py() < len(users):
        # Adjacency lists have one line per user, so this is more likely a file of pairs with a damaged line.
        odd = int(np.flatnonzero((lines.counts > 0) & (lines.counts != 2))[0])
        raise DataError(
            f"{lines.path.name} line {odd + 1} has {lines.counts[odd]} fields where pairs have two, and users repeat, "
            f'which they do not in adjacency lists: {lines.text_of(odd)!r}; mend the line or state format="adjacency"'
        )
    return "adjacency"


def _read_pairs(lines: TokenLines) -> RawTable:
    filled = lines.counts[lines.counts > 0]
    width = int(filled[0])
    expected = width if 2 <= width <= len(PAIR_COLUMNS) else 2
    wrong = np.flatnonzero((lines.counts > 0) & (lines.counts != expected))
    if len(wrong):
        raise DataError(
            f"{lines.path.name} line {wrong[0] + 1} has {lines.counts[wrong[0]]} fields where {expected} were "
            f"expected: {lines.text_of(int(wrong[0]))!r}; mend or drop it"
        )
    rows = np.arange(len(filled), dtype=np.int64) * width
    columns = {PAIR_COLUMNS[place]: lines.tokens.take(pa.array(rows + place)) for place in range(width)}
    line_numbers = np.flatnonzero(lines.counts) + 1
    return RawTable(pa.table(columns), lines.path.name, lambda row: f"line {line_numbers[row]}", is_text=True)


def _read_adjacency(lines: TokenLines) -> RawTable:
    good = pc.match_substring_regex(lines.tokens, "^[0-9]+$")
    if not pc.all(good).as_py():
        position = pc.index(good, False).as_py()
        line = int(np.searchsorted(np.cumsum(lines.counts), position, side="right"))
        raise DataError(
            f"{lines.path.name} line {line + 1}: {clip(lines.tokens[position].as_py())!r} is not a whole number from "
            f"0; adjacency lists are `user item item ...` and pairs have two fields a line: {lines.text_of(line)!r}"
        )
    starts = _starts(lines)
    per_user = lines.counts[lines.counts > 0] - 1
    is_item = np.ones(len(lines.tokens), dtype=bool)
    is_item[starts] = False
    if not is_item.any():
        raise DataError(f"{lines.path.name} has users but no items; expected `user item item ...` on each line")
    users = lines.tokens.take(pa.array(np.repeat(starts, per_user)))
    line_numbers = np.repeat(np.flatnonzero(lines.counts) + 1, per_user)
    table = pa.table({"user": users, "item": lines.tokens.filter(pa.array(is_item))})
    return RawTable(table, lines.path.name, lambda row: f"line {line_numbers[row]}", is_text=True)


def _starts(lines: TokenLines) -> NDArray[np.int64]:
    filled = lines.counts[lines.counts > 0]
    starts: NDArray[np.int64] = np.cumsum(filled) - filled
    return starts


def _tokenize(path: Path) -> TokenLines:
    chunks, counts = [], [np.empty(0, dtype=np.int64)]
    with open_bytes(path) as stream:
        for block in _whole_lines(stream):
            tokens, per_line = _tokenize_block(block)
            try:
                tokens.validate(full=True)
            except pa.ArrowInvalid:
                raise DataError(f"{path.name}: {not_utf8(path)}") from None
            chunks.append(tokens)
            counts.append(per_line)
    return TokenLines(path, pa.chunked_array(chunks, type=pa.string()), np.concatenate(counts))


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    rest = stream.read(3)
    rest = b"" if rest == b"\xef\xbb\xbf" else rest  # a byte order mark is not part of the first id
    while block := stream.read(BLOCK_BYTES):
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += block
    if rest:
        yield rest


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
