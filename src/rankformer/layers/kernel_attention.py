"""Attention over all pairs of nodes in linear time, where its weights are products of positive features.

With features f_v of queries and k_w of keys (`random_features`), values x_w and weights e_ws of the keys in S samples:

    meaning    out_v = 1/S sum_s sum_w p_s(v,w) x_w,    p_s(v,w) = e_ws f_v . k_w / sum_w' e_w's f_v . k_w'
    linear     out_v = 1/S sum_s (f_v U_s) / (f_v o_s),    U_s = sum_w e_ws k_w x_w^T (F, d),   o_s = sum_w e_ws k_w (F)

The sums over keys are one function, `key_sums`, what a query does with them another, so that a linear map of the values
may be applied to the small U_s instead: sum_w k_w (W x_w)^T = U W^T. Two ways to read the sums: `mean_attention` is the
formula above (NodeFormer: e are the exponentials of Gumbel noise); `masked_attention` has one weight for every pair
that splits into S = 2 products, M(v,w) = sum_s c_vs e_ws (MGFormer), which makes it the ratio of sums over s.

Both backward passes are written out: none keeps anything of size N x S x F, or N x S x d, and nothing is N x N.
"""

from typing import Any

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import edge_dot, row_dot, spmm


def key_sums(keys: Tensor, values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return U (S, F, d) and o (S, F), the sums over keys k (N, F) and values x (N, d) under weights e (N, S)."""
    return _KeySums.apply(keys, values, weights), weights.T @ keys  # type: ignore[no-untyped-call]


def mapped_sums(sums: Tensor, norms: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the U (S, F, d') that `key_sums` would give of the values x W^T + b, W (d', d), without those values."""
    result = sums @ weight.T
    return result if bias is None else result + norms[:, :, None] * bias


class _KeySums(torch.autograd.Function):
    """U_s = (e_s k)^T x; with H_s = x gU_s^T:  gk = sum_s e_s H_s,  gx = sum_s (e_s k) gU_s,  ge_s = k . H_s."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, values: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(keys, values, weights)
        return torch.stack([(keys * column[:, None]).T @ values for column in weights.unbind(1)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        keys, values, weights = ctx.saved_tensors
        grad_keys, grad_values = torch.zeros_like(keys), torch.zeros_like(values)
        grad_weights = torch.empty_like(weights) if ctx.needs_input_grad[2] else None
        scratch = torch.empty_like(keys)
        for sample, (column, grad) in enumerate(zip(weights.unbind(1), grads[0].unbind(0), strict=True)):
            through = values @ grad.T  # (N, F)
            grad_keys.addcmul_(through, column[:, None])
            if grad_weights is not None:
                grad_weights[:, sample] = row_dot(keys, through, scratch=through)
            grad_values.addmm_(torch.mul(keys, column[:, None], out=scratch), grad)
        return grad_keys, grad_values, grad_weights


def mean_attention(queries: Tensor, sums: Tensor, norms: Tensor) -> Tensor:
    """Return 1/S sum_s (f_v U_s) / (f_v o_s), (N, d), for queries f (N, F), U (S, F, d) or its maps, and o (S, F)."""
    return _MeanAttention.apply(queries, sums, norms)  # type: ignore[no-any-return, no-untyped-call]


class _MeanAttention(torch.autograd.Function):
    """Scaling f before the product keeps every temporary N x F. With t_s = 1 / (S f . o_s) and A_s = G U_s^T:

    gU_s = (t_s f)^T G,   q_s = -S t_s^2 (f . A_s) is the gradient at f . o_s,   go_s = f^T q_s,
    gf = sum_s t_s A_s + q_s o_s^T.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, sums: Tensor, norms: Tensor) -> Tensor:
        scales = (queries @ norms.T).mul_(len(norms)).reciprocal_()  # (N, S) t
        out = queries.new_zeros(len(queries), sums.shape[2])
        for scale, total in zip(scales.unbind(1), sums.unbind(0), strict=True):
            out.addmm_(queries * scale[:, None], total)
        ctx.save_for_backward(queries, sums, norms, scales)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, sums, norms, scales = ctx.saved_tensors
        grad, count = grads[0], len(norms)
        grad_queries, grad_sums, through_norms = torch.zeros_like(queries), torch.empty_like(sums), scales.square()
        scratch = torch.empty_like(queries)
        for sample, (scale, total) in enumerate(zip(scales.unbind(1), sums.unbind(0), strict=True)):
            through = grad @ total.T  # (N, F)
            grad_queries.addcmul_(through, scale[:, None])
            through_norms[:, sample] *= row_dot(queries, through, scratch=scratch) * -count
            grad_sums[sample] = torch.mul(queries, scale[:, None], out=scratch).T @ grad
        return grad_queries.addmm_(through_norms, norms), grad_sums, through_norms.T @ queries


def masked_attention(queries: Tensor, mask: Tensor, sums: Tensor, norms: Tensor) -> Tensor:
    """Return (sum_s c_vs f_v U_s) / (sum_s c_vs f_v o_s), (N, d), for queries f (N, F), U (S, F, d) and o (S, F).

    The mask c (N, S) is what its products have of the query; U and o are made with what they have of the keys.
    """
    below = (mask * (queries @ norms.T)).sum(1, keepdim=True)  # (N, 1)
    parts = [(queries * column[:, None]) @ total for column, total in zip((mask / below).unbind(1), sums, strict=True)]
    return torch.stack(parts).sum(0)


def attention_reference(queries: Tensor, keys: Tensor, values: Tensor, pair_weights: Tensor) -> Tensor:
    """Return the attention of one sample by the N x N' matrix of pair weights times f_v . k_w, (N, d): for tests."""
    scores = pair_weights * (queries @ keys.T)
    return (scores / scores.sum(1, keepdim=True)) @ values


def both_way_dots(graph: BipartiteGraph, left: Tensor, right: Tensor) -> Tensor:
    """Return left_u . right_i and left_i . right_u of (n+m, d) rows for every edge, (2, E) in user order."""
    return _BothWayDots.apply(graph, left, right)  # type: ignore[no-any-return, no-untyped-call]


class _BothWayDots(torch.autograd.Function):
    """Each gradient is one SpMM: a row of `left` meets the values of its own direction, a row of `right` the other."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, left: Tensor, right: Tensor) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(left, right)
        left, right = left.detach(), right.detach()
        return torch.stack([edge_dot(graph, left, right), edge_dot(graph, right, left)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        graph: BipartiteGraph = ctx.graph
        left, right = ctx.saved_tensors
        by_user, by_item = grads[0]
        item_order = graph.item_order
        grad_left = spmm(graph, torch.cat([by_user, by_item.index_select(0, item_order)]), right)
        grad_right = spmm(graph, torch.cat([by_item, by_user.index_select(0, item_order)]), left)
        return None, grad_left, grad_right
