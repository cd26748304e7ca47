"""Attention of every node to every node, written out over all N x N pairs: the references of `simple_attention`.

Head by head, with rows of A that sum to 1 and with Q^ and K^ scaled by their joint norm or row by row:

    DIFFormer-s   A = rownorm( 1 1^T + Q^ K^^T )
    SGFormer      A = rownorm( N I   + Q^ K^^T )
    DIFFormer-a   A = rownorm( sigmoid(Q K^T) ), which has no linear form
"""

from typing import Literal

import torch
from torch import Tensor

from rankformer.layers.rank_attention_reference import safe_inverse

Norm = Literal["frobenius", "row"]


def difformer_attention_reference(q: Tensor, k: Tensor, v: Tensor, norm: Norm = "frobenius") -> Tensor:
    """Return A V of DIFFormer-s for each head, (N, H, h).

    Args:
        q: (N, H, h) queries.
        k: (N, H, h) keys.
        v: (N, H, h) values, or (N, 1, h) for all heads.
        norm: how q and k are scaled.
    """
    return _apply(1 + _products(scaled(q, norm), scaled(k, norm)), v)


def sgformer_attention_reference(q: Tensor, k: Tensor, v: Tensor, norm: Norm = "frobenius") -> Tensor:
    """Return A V of SGFormer for each head, (N, H, h); arguments as for DIFFormer."""
    loops = len(q) * torch.eye(len(q), dtype=q.dtype, device=q.device)
    return _apply(loops + _products(scaled(q, norm), scaled(k, norm)), v)


def sigmoid_attention(q: Tensor, k: Tensor, v: Tensor, norm: Norm = "frobenius") -> Tensor:
    """Return A V of DIFFormer-a for each head, (N, H, h).

    Args:
        q: (N, H, h) queries.
        k: (N, H, h) keys.
        v: (N, H, h) values, or (N, 1, h) for all heads.
        norm: "row" scales q and k to unit rows as in the formula, "frobenius" leaves them as they are, as the program.
    """
    if norm == "row":
        q, k = scaled(q, norm), scaled(k, norm)
    return _apply(torch.sigmoid(_products(q, k)), v)


def scaled(rows: Tensor, norm: Norm) -> Tensor:
    """Return queries or keys (N, H, h) divided by their norm; what is zero stays zero."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True) if norm == "row" else torch.linalg.vector_norm(rows)
    return rows * safe_inverse(length)


def _products(q: Tensor, k: Tensor) -> Tensor:
    """Return the inner products of all pairs, (H, N, N)."""
    return torch.einsum("nhi,mhi->hnm", q, k)


def _apply(weights: Tensor, v: Tensor) -> Tensor:
    """Return the values averaged with weights (H, N, N) whose rows are first divided by their sums, (N, H, h)."""
    shares = weights / weights.sum(2, keepdim=True)
    return torch.einsum("hnm,mhj->nhj", shares, v.expand(-1, len(weights), -1))
