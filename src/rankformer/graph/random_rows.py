"""Some rows of a random table, to the same bits as if the whole table were drawn: what a rank has of it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

_ROWS_AT_ONCE = 2**16


def drawn_rows(
    total: int,
    dim: int,
    ranges: Sequence[tuple[int, int]],
    draw: Callable[[Tensor], Any],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return ranges of rows, one after another, of a (total, dim) table that `draw` fills in place, block by block.

    The draws of a block follow those of the block before. Normal numbers are made sixteen at a time and the last
    sixteen of a call anew, so blocks hold a multiple of sixteen and the last is the longest.
    """
    starts = list(range(0, max(1, total - _ROWS_AT_ONCE + 1), _ROWS_AT_ONCE))
    parts: list[list[Tensor]] = [[] for _ in ranges]
    for start, end in pairwise([*starts, total]):
        block = torch.empty(end - start, dim, dtype=dtype)
        draw(block)
        for part, (low, high) in zip(parts, ranges, strict=True):
            if max(low, start) < min(high, end):
                part.append(block[max(low, start) - start : min(high, end) - start].clone())
    return torch.cat([torch.empty(0, dim, dtype=dtype), *(block for part in parts for block in part)])
