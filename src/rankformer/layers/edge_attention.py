"""Attention along given entries of a matrix: every node attends to the columns of its row, in several heads.

    s_e,h = clip(q_r . k_c, -10, 10)          entry e = (r, c), head h has d/H of the dimensions of q, k, v
    p_e,h = exp(s_e,h) / (sum over the entries of row r of exp(s) + 1e-8)
    o_r,h = sum_e p_e,h v_c                   the heads side by side: (N, d)

Nodes are projected once, before entries are read. Heads are computed one by one: the N x d/H rows of a head are small
enough to stay in the processor's cache while all entries read them. Backward, with g the gradient of o:

    dp_e = g_r . v_c,   ds_e = p_e (dp_e - g_r . o_r) where s was not clipped      (over a row, sum p dp = g_r . o_r)
    dq_r = sum_e ds_e k_c,   dk_c = sum_e ds_e q_r,   dv_c = sum_e p_e g_r

Time O(nnz d), memory O(nnz H + N d): nothing of size nnz x d is made.
"""

from typing import Any

import torch
from torch import Tensor, nn

from rankformer.graph.entries import Entries, entry_dot, entry_sum, entry_sum_back
from rankformer.graph.sparse_ops import row_dot
from rankformer.layers.seeded import xavier_linear

_LARGEST_SCORE = 10.0
_TINY = 1e-8


class EdgeAttention(nn.Module):
    """The learned projections W_q, W_k, W_v of one such layer, (d, d) each, drawn from Xavier's uniform range."""

    def __init__(self, dim: int, num_heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value = (xavier_linear(dim, dim, generator) for _ in range(3))

    def project(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of (N, d) rows, by heads: (H, N, d/H) each."""
        shape = len(rows), self.num_heads, -1
        q, k, v = (part(rows).view(shape).transpose(0, 1).contiguous() for part in (self.query, self.key, self.value))
        return q, k, v

    def forward(self, entries: Entries, rows: Tensor) -> Tensor:
        return edge_attention(entries, *self.project(rows))


def edge_attention(entries: Entries, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return what each row of the entries takes from the values of its columns, (N, d); all inputs (H, N, d/H)."""
    heads: Tensor = _EdgeAttention.apply(entries, queries, keys, values)  # type: ignore[no-untyped-call]
    return heads.transpose(0, 1).flatten(1)


def attention_weights(entries: Entries, queries: Tensor, keys: Tensor) -> Tensor:
    """Return p, (H, nnz); not differentiable."""
    return torch.stack([_weights(entries, *head)[0] for head in zip(queries.detach(), keys.detach(), strict=True)])


def _weights(entries: Entries, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return p of one head, (nnz,), and where its scores were not clipped."""
    scores = entry_dot(entries, query, key)
    inside = scores.abs() <= _LARGEST_SCORE
    raised = scores.clamp_(-_LARGEST_SCORE, _LARGEST_SCORE).exp_()
    sums = torch.segment_reduce(raised, "sum", offsets=entries.ptr, initial=0.0)
    return raised.mul_((1 / (sums + _TINY)).index_select(0, entries.rows)), inside


class _EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Entries, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        weights = values.new_empty(len(values), len(entries))
        inside = torch.empty_like(weights, dtype=torch.bool)
        for head, (query, key, value) in enumerate(zip(queries, keys, values, strict=True)):
            weights[head], inside[head] = _weights(entries, query, key)
            out[head] = entry_sum(entries, weights[head], value)
        ctx.entries = entries
        ctx.save_for_backward(queries, keys, values, weights, inside, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        queries, keys, values, weights, inside, out = ctx.saved_tensors
        entries, grad = ctx.entries, grads[0].contiguous()
        grad_queries, grad_keys, grad_values = (torch.empty_like(values) for _ in range(3))
        for head, g in enumerate(grad):
            p = weights[head]
            mean = row_dot(g, out[head]).index_select(0, entries.rows)
            grad_scores = entry_dot(entries, g, values[head]).sub_(mean).mul_(p).mul_(inside[head])
            grad_queries[head] = entry_sum(entries, grad_scores, keys[head])
            grad_keys[head] = entry_sum_back(entries, grad_scores, queries[head])
            grad_values[head] = entry_sum_back(entries, p, g)
        return None, grad_queries, grad_keys, grad_values
