"""Attention of every node to every node without softmax, in time linear in the number of nodes N.

Queries and keys are scaled, Q^ and K^, either each by one number, its Frobenius norm over all nodes and heads
(`norm="frobenius"`, what the authors' programs do), or row by row to unit length (`norm="row"`, DIFFormer's formula).
Then, head by head, with rows of A that sum to 1:

    DIFFormer-s   A = rownorm( 1 1^T + Q^ K^^T )      A V = ( mean(V) + Q^ (K^^T V) / N ) / ( 1 + Q^ (K^^T 1) / N )
    SGFormer      A = rownorm( N I   + Q^ K^^T )      A V = ( V       + Q^ (K^^T V) / N ) / ( 1 + Q^ (K^^T 1) / N )
    DIFFormer-a   A = rownorm( sigmoid(Q K^T) )       which has no linear form

Under the joint norm the correction Q^ K^^T / N is of order 1/N: DIFFormer's output is all but the mean of V for every
node, and SGFormer's all but V itself. That is how they are published.

From queries, keys and values a head costs 2 N h^2, as K^^T V is h x h (`linear_attention`). When these are linear in
rows Y (N, h), and the norm is the joint one, none of them need be made (`attention_of_rows`). Let Y~ = [Y 1] and
Q = Y~ W_q, K = Y~ W_k, V = Y~ W_v, biases in the last row. With the moments G = Y~^T Y~ and e the last unit vector,

    K^T V = W_k^T G W_v,   K^T 1 = W_k^T G e,   |Q|^2 = tr(W_q^T G W_q),   mean(V) = W_v^T G e / N
    Q (K^T V) = Y~ (W_q K^T V),   Q (K^T 1) = Y~ (W_q K^T 1)

so that numerator and denominator are Y~ times a small matrix: N h^2 for the moments that all heads share, N h^2 for the
result of each head, where projections and attention would cost 5 N h^2.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rankformer.layers.rank_attention_reference import safe_inverse
from rankformer.layers.seeded import uniform_linear

Norm = Literal["frobenius", "row"]
Linear = Literal["difformer", "sgformer"]
Kind = Literal["difformer", "sgformer", "sigmoid"]


class HeadWeights(NamedTuple):
    """W_q, W_k and W_v of H heads, each (h + 1, H, h) with the biases in the last row; W_v (h + 1, 1, h) if shared."""

    query: Tensor
    key: Tensor
    value: Tensor


def simple_attention_reference(kind: Kind, q: Tensor, k: Tensor, v: Tensor, norm: Norm = "frobenius") -> Tensor:
    """Return A V for each head, (N, H, h), through all N x N pairs; arguments as for `linear_attention`.

    The sigmoid's queries and keys are scaled under the norm "row" only, as in the formula: the program leaves them.
    """
    if kind != "sigmoid" or norm == "row":
        q, k = scaled(q, norm), scaled(k, norm)
    products = torch.einsum("nhi,mhi->hnm", q, k)
    if kind == "sigmoid":
        weights = torch.sigmoid(products)
    else:
        weights = products + (1 if kind == "difformer" else len(q) * torch.eye(len(q), dtype=q.dtype, device=q.device))
    weights = weights / weights.sum(2, keepdim=True)
    return torch.einsum("hnm,mhj->nhj", weights, v.expand(-1, len(weights), -1))


def scaled(rows: Tensor, norm: Norm) -> Tensor:
    """Return queries or keys (N, H, h) divided by their norm; what is zero stays zero."""
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True) if norm == "row" else torch.linalg.vector_norm(rows)
    return rows * safe_inverse(length)


def linear_attention(kind: Linear, q: Tensor, k: Tensor, v: Tensor, norm: Norm = "frobenius") -> Tensor:
    """Return A V of DIFFormer-s or SGFormer for each head, (N, H, h) like q, k and v; v may be (N, 1, h) for all."""
    q, k = scaled(q, norm), scaled(k, norm) / len(q)
    constant = v if kind == "sgformer" else v.mean(0, keepdim=True)
    key_values = torch.einsum("nhi,nhj->hij", k, v.expand(-1, k.shape[1], -1))
    numerator = constant + torch.einsum("nhi,hij->nhj", q, key_values)
    return numerator / (1 + torch.einsum("nhi,hi->nh", q, k.sum(0)))[..., None]


def attention_of_rows(kind: Linear, rows: Tensor, weights: HeadWeights) -> Tensor:
    """Return `linear_attention` with the joint norm of what the weights make of rows (N, h), (N, H, h)."""
    size, heads = len(rows), weights.query.shape[1]
    moments = _moments(rows)  # (h + 1, h + 1)
    squares = [torch.einsum("ahi,ab,bhi->", part, moments, part) for part in (weights.query, weights.key)]
    scale = _safe_inverse_root(squares[0] * squares[1]) / size
    keys = torch.einsum("ahi,ab->hib", weights.key, moments) * scale  # K^^T Y~ / (|Q| N)
    value = weights.value.expand(-1, heads, -1)
    if kind == "sgformer":
        constant = value
    else:
        means = torch.einsum("b,bhj->hj", moments[-1] / size, value)
        constant = torch.cat([torch.zeros_like(value[:-1]), means[None]])
    above = (constant + torch.einsum("ahi,hib,bhj->ahj", weights.query, keys, value)).flatten(1)  # (h + 1, H h)
    below = torch.einsum("ahi,hi->ah", weights.query, keys[:, :, -1])  # (h + 1, H)
    numerator = torch.addmm(above[-1], rows, above[:-1]).view(size, heads, -1)
    return numerator * (1 + torch.addmm(below[-1], rows, below[:-1])).reciprocal()[..., None]


def _moments(rows: Tensor) -> Tensor:
    """Return Y~^T Y~ of Y~ = [Y 1], (h + 1, h + 1)."""
    sums = rows.sum(0)[:, None]
    above, below = torch.cat([rows.T @ rows, sums], 1), torch.cat([sums, sums.new_tensor([[len(rows)]])])
    return torch.cat([above, below.T])


def _safe_inverse_root(square: Tensor) -> Tensor:
    """Return 1/sqrt(x), and 0 (with no gradient) where x is 0 or, by rounding, below."""
    positive = square > 0
    return torch.where(positive, torch.where(positive, square, 1.0).rsqrt(), 0.0)


class SimpleAttention(nn.Module):
    """Attention of rows (N, h) with its projections; the mean over H heads, each of the full dimension, (N, h).

    Without `use_weight` the values are the rows themselves. The kind sigmoid goes through all N x N pairs.
    """

    def __init__(
        self, kind: Kind, dim: int, heads: int, use_weight: bool, norm: Norm, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.kind, self.norm, self.heads = kind, norm, heads
        self.query = uniform_linear(dim, heads * dim, generator)
        self.key = uniform_linear(dim, heads * dim, generator)
        self.value = uniform_linear(dim, heads * dim, generator) if use_weight else None

    def forward(self, rows: Tensor) -> Tensor:
        if self.kind != "sigmoid" and self.norm == "frobenius":
            return attention_of_rows(self.kind, rows, self.weights()).mean(1)
        q, k, v = self.projections(rows)
        if self.kind == "sigmoid":
            return simple_attention_reference(self.kind, q, k, v, self.norm).mean(1)
        return linear_attention(self.kind, q, k, v, self.norm).mean(1)

    def projections(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k (N, H, h) and v, which is (N, 1, h) without weights."""
        shape = len(rows), self.heads, rows.shape[1]
        v = rows[:, None] if self.value is None else self.value(rows).view(shape)
        return self.query(rows).view(shape), self.key(rows).view(shape), v

    def mean_values(self, rows: Tensor) -> Tensor:
        """Return the mean of the heads' values, (N, h), which takes one product however many heads there are."""
        if self.value is None:
            return rows
        mean = self._by_head(self.value).mean(1)
        return linear(rows, mean[:-1].T, mean[-1])

    def weights(self) -> HeadWeights:
        """Return the projections as tensors."""
        dim = self.query.in_features
        unit = torch.eye(dim + 1, dim, dtype=self.query.weight.dtype, device=self.query.weight.device)[:, None]
        value = unit if self.value is None else self._by_head(self.value)
        return HeadWeights(self._by_head(self.query), self._by_head(self.key), value)

    def _by_head(self, projection: nn.Linear) -> Tensor:
        """Return weight and bias as (h + 1, H, h)."""
        return torch.cat([projection.weight.T, projection.bias[None]]).view(-1, self.heads, projection.in_features)
