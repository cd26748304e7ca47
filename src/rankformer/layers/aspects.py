"""The arithmetic on aspect latents that DualVAE's training and its answers share.

With z_a (b, d) latents of some entities and B_a (m, d) those of the opposite side, f the decoders, for each aspect a:

    hidden      sum over the columns i of a row of w[a, i] t_i, perhaps over the root of their number     (A, b, h)
    logits      G_a = z_a B_a^T + tanh( f(z_a) f'(B_a)^T )                                  (A, b, m)

But for `divided_by_root`, nothing here is differentiated by torch: training writes its own backward.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import elu, embedding_bag

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "elu": elu,
}


def weighted_bags(columns: Tensor, ptr: Tensor, table: Tensor, weights: Tensor) -> Tensor:
    """Return sum over k in ptr[r]:ptr[r+1] of weights[a, columns_k] table[columns_k], (A, b, h).

    Args:
        columns: (nnz,) column of each entry, row after row.
        ptr: (b + 1,) where each row starts.
        table: (m, h) a row for each column.
        weights: (A, m) of each column in each aspect.
    """
    return torch.stack(
        [
            embedding_bag(columns, table, ptr, mode="sum", per_sample_weights=each[columns], include_last_offset=True)
            for each in weights
        ]
    )


def divided_by_root(sums: Tensor, ptr: Tensor) -> Tensor:
    """Return sums over rows, (..., b, h), divided by the root of each row's size; those of empty rows as they are.

    Args:
        sums: the sums.
        ptr: (b + 1,) where each row starts.
    """
    return sums * ptr.diff().clamp(min=1).to(sums.dtype).rsqrt()[:, None]


def tanh_products(decoded: Tensor, other_decoded: Tensor) -> Tensor:
    """Return tanh of the inner products of decoded rows, (A, b, m)."""
    return torch.bmm(decoded, other_decoded.mT).tanh_()


def mix_aspects(values: Tensor, attention: Tensor) -> Tensor:
    """Return sum over a of attention[a, i] values[a, r, i], (b, m)."""
    mixed = values[0] * attention[0]
    for value, weight in zip(values[1:], attention[1:], strict=True):
        mixed.addcmul_(value, weight)
    return mixed
