"""Alignment and uniformity of unit vectors: a loss without negatives.

Wang et al., "Towards Representation Alignment and Uniformity in Collaborative Filtering", KDD 2022 (DirectAU). For a
batch of B interactions and unit rows y:

    align = mean_b |y_u - y_i|^2 = 2 - 2 mean_b cos(u_b, i_b)
    uni   = log( mean over the B (B-1) / 2 pairs of rows of exp(-2 |y_b - y_c|^2) ),   on either side of the batch

A node that occurs c times in the batch stands for c rows, whose c (c-1) / 2 pairs have distance 0. Here such rows are
computed once and weighted, which changes nothing but the time: |y_b - y_c|^2 = 2 - 2 cos, so with counts c

    uni = log( sum_{v != w} c_v c_w exp(4 cos(v, w)) + e^4 sum_v c_v (c_v - 1) ) - log(B (B-1)) - 4.
"""

import math
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024


def alignment(cosines: Tensor) -> Tensor:
    """Return the mean squared distance of pairs of unit rows with these inner products; 0 iff all pairs coincide."""
    return 2 - 2 * cosines.mean()


def uniformity(rows: Tensor, counts: Tensor) -> Tensor:
    """Return uni of the unit rows (U, d) of distinct nodes that occur `counts` (U,) times, in the rows' type.

    It is 0 if all are equal or there is no pair, else below 0. Time U^2 d, memory a block of rows times U.
    """
    total = counts.sum().item()
    if total < 2:
        return rows.sum() * 0  # no pair: nothing to spread, and a gradient of zeros
    pair_sum: Tensor = _PairSum.apply(rows, counts)  # type: ignore[no-untyped-call]
    same = math.exp(4) * (counts * (counts - 1)).sum()
    return torch.log(pair_sum + same) - (math.log(total * (total - 1)) + 4)


class _PairSum(torch.autograd.Function):
    """sum_{v != w} c_v c_w exp(4 y_v . y_w), whose gradient 8 c_v sum_w c_w exp(4 y_v . y_w) y_w is computed too.

    Each block of rows is compared with itself and the rows after it; each product counts for both.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Tensor) -> Tensor:
        weighted = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1).mul_(counts[:, None])  # (U, d+1)
        met = torch.zeros_like(weighted)
        for start in range(0, len(rows), _BLOCK):
            end = min(start + _BLOCK, len(rows))
            kernel = ((4 * rows[start:end]) @ rows[start:].T).exp_()
            kernel.fill_diagonal_(0)
            met[start:end].addmm_(kernel, weighted[start:])
            met[end:].addmm_(kernel[:, end - start :].T, weighted[start:end])
        ctx.save_for_backward(met[:, :-1] * (8 * counts[:, None]))
        return torch.dot(met[:, -1], counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None
