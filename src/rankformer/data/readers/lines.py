"""Lines of tokens separated by spaces or tabs: `user item` lines and LightGCN's adjacency lists.

pairs      `user item`, `user item weight` or `user item weight time`
adjacency  `user item item ...`, each user on one line, integers only; a user alone on a line has no items
txt        inferred from the lines: two tokens on each are pairs, ragged lines are adjacency lists, and three or four
           tokens on every line could be either, so that has to be stated
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.readers.base import BLOCK_BYTES, SHOWN_BAD_ROWS, RawTable, check_rows, clip
from rankformer.data.readers.input_file import InputFile
from rankformer.errors import DataError

PAIR_COLUMNS = ("user", "item", "weight", "time")


@dataclass(frozen=True)
class TokenLines:
    """The lines of a file that have tokens: the tokens of each (lists of strings), how many, and its line number."""

    file: InputFile
    tokens: pa.ChunkedArray
    sizes: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def name(self) -> str:
        """What to call the file in an error."""
        return self.file.name

    def where(self, line: int) -> str:
        """Return the name of the file and the number of a line, which is counted from 0 here."""
        return f"{self.name} line {self.numbers[line]}"

    def quote(self, line: int) -> str:
        """Return the tokens of a line, counted from 0, for an error message."""
        return repr(clip(" ".join(self.tokens[line].values[:40].to_pylist())))

    def table(self, columns: dict[str, pa.ChunkedArray], line_numbers: NDArray[np.int64]) -> RawTable:
        """Return columns of which each row stands on the line of that number."""
        table = pa.table({name: column.dictionary_encode() for name, column in columns.items()})
        options = self.file.options
        return RawTable(table, self.name, lambda row: f"line {line_numbers[row]}", is_text=True, options=options)


def parse_txt(lines: TokenLines) -> RawTable:
    """Return the table of lines that are pairs or adjacency lists, inferred from their lengths."""
    first = lines.sizes[0]
    if (lines.sizes == first).all() and first in (3, 4):
        raise DataError(
            f'{lines.name} has {first} fields on every line: state format="pairs" if they are '
            f'{" ".join(PAIR_COLUMNS[:first])}, or format="adjacency" if they are a user and its items'
        )
    if (lines.sizes == 2).all():
        return parse_pairs(lines)
    users = pc.list_element(lines.tokens, 0)
    if pc.count_distinct(users).as_py() < len(users):
        # Adjacency lists have one line per user, so this is more likely a file of pairs with a damaged line.
        odd = int(np.flatnonzero(lines.sizes != 2)[0])
        raise DataError(
            f"{lines.where(odd)} has {lines.sizes[odd]} fields where pairs have two, and users occur more than once, "
            f'which they do not in adjacency lists: {lines.quote(odd)}; fix the line or state format="adjacency"'
        )
    return parse_adjacency(lines)


def parse_pairs(lines: TokenLines) -> RawTable:
    """Return one row per line."""
    size, skip = int(lines.sizes[0]), lines.file.options.on_bad_row == "skip"
    if skip:  # the first line may be a bad one: go by what most lines have
        size = int(np.bincount(np.minimum(lines.sizes, 5), minlength=6)[2:5].argmax()) + 2
    expected = size if 2 <= size <= len(PAIR_COLUMNS) else 2
    wrong = np.flatnonzero(lines.sizes != expected).tolist()
    if wrong and skip and len(wrong) < len(lines.sizes):
        return _without(lines, wrong, expected)
    if wrong:
        raise DataError(
            f"{lines.where(wrong[0])} has {lines.sizes[wrong[0]]} fields where {expected} were expected: "
            f"{lines.quote(wrong[0])}; fix or drop it, or leave such lines out with --on-bad-row skip"
        )
    columns = {PAIR_COLUMNS[field]: pc.list_element(lines.tokens, field) for field in range(size)}
    return lines.table(columns, lines.numbers)


def _without(lines: TokenLines, wrong: list[int], expected: int) -> RawTable:
    """Return the pairs of the lines that have the right number of fields."""
    right = np.ones(len(lines.sizes), dtype=np.bool_)
    right[wrong] = False
    table = parse_pairs(
        TokenLines(lines.file, lines.tokens.filter(pa.array(right)), lines.sizes[right], lines.numbers[right])
    )
    for line in wrong[:SHOWN_BAD_ROWS]:
        found = f"{lines.sizes[line]} fields where {expected} were expected: {lines.quote(line)}"
        table.bad.add("with another number of fields", f"{lines.where(line)}: {found}")
    table.bad.add("with another number of fields", count=max(0, len(wrong) - SHOWN_BAD_ROWS))
    return table


def parse_adjacency(lines: TokenLines) -> RawTable:
    """Return one row per item on each user's line."""
    tokens = pc.list_flatten(lines.tokens)
    line_of_token = np.repeat(np.arange(len(lines.sizes)), lines.sizes)
    good = pc.match_substring_regex(tokens, "^[0-9]+$")
    if not pc.all(good).as_py():
        position = pc.index(good, False).as_py()
        line = int(line_of_token[position])
        raise DataError(
            f"{lines.where(line)}: {clip(tokens[position].as_py())!r} is not an integer from 0; adjacency lists "
            f"are `user item item ...` and pairs have two fields a line: {lines.quote(line)}"
        )
    is_item = np.diff(line_of_token, prepend=-1) == 0
    if not is_item.any():
        raise DataError(f"{lines.name} has users but no items; expected `user item item ...` on each line")
    line_of_item = line_of_token[is_item]
    users = pc.list_element(lines.tokens, 0).take(pa.array(line_of_item))
    return lines.table({"user": users, "item": tokens.filter(pa.array(is_item))}, lines.numbers[line_of_item])


def tables(
    file: InputFile, named: Collection[str] | None, whole: bool, *, parse: Callable[[TokenLines], RawTable]
) -> Iterator[RawTable]:
    """Yield the table that `parse` (of those above) makes of the lines of a file, always as a whole."""
    del named, whole
    blocks: list[pa.Array] = []
    rows = 0
    with file.open() as stream:
        while block := stream.read(BLOCK_BYTES) + stream.readline():  # whole lines
            # A byte order mark is not part of the first id.
            blocks.append(_tokenize(block.decode("utf-8" if blocks else "utf-8-sig")))
            rows += len(blocks[-1].flatten()) // 2
            check_rows(rows, file.name, file.options)
    tokens = pa.chunked_array(blocks, type=pa.list_(pa.string()))
    filled = pc.is_valid(tokens)
    if not pc.any(filled).as_py():
        raise DataError(f"{file.name} holds only blank lines; expected `user item` on each line")
    tokens = tokens.filter(filled)
    sizes = pc.list_value_length(tokens).to_numpy().astype(np.int64)
    yield parse(TokenLines(file, tokens, sizes, np.flatnonzero(filled.to_numpy()) + 1))


def _tokenize(block: str) -> pa.Array:
    """Return the tokens of each of some whole lines, null for a blank one, without a Python loop over lines."""
    lines = pc.ascii_trim_whitespace(pc.split_pattern(pa.array([block.removesuffix("\n")]), "\n").flatten())
    return pc.ascii_split_whitespace(pc.replace_with_mask(lines, pc.equal(lines, ""), pa.scalar(None, pa.string())))
