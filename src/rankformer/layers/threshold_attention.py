"""TopKGAT's layer: neighbour sums whose weights are largest where a similarity is at the user's learned threshold.

    w_ui = 4 sigma(a) sigma(-a) / sqrt(d_u d_i),   a = x_u . x_i - t_u,   x = v / |v|       on edges only
    y_u = sum_{i in N_u} w_ui v_i,   y_i = sum_{u in N_i} w_ui v_u

sigma(a) sigma(-a) is the derivative of sigma, by which a smoothed "is among the top K" depends on a score. With G the
gradient at y and e = (u, i) an edge:

    gw_e = G_u . v_i + v_u . G_i,   ga_e = gw_e w_e (sigma(-a) - sigma(a)),   gt_u = -sum_{e in u} ga_e
    gv = W G + through unit rows: ga X

One `edge_dot` and one `spmm` forward, two of each backward; nothing of size E x d is made.
"""

from typing import Any

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import at_users, edge_dot, row_dot, spmm, two_way, user_sums
from rankformer.layers.light_propagation import symmetric_weights
from rankformer.layers.rank_attention import safe_inverse_


def threshold_attention(graph: BipartiteGraph, v: Tensor, thresholds: Tensor) -> Tensor:
    """Return y (n+m, d), users first, of rows v (n+m, d) and the users' thresholds (n,), differentiable in both."""
    return _ThresholdAttention.apply(graph, v, thresholds)  # type: ignore[no-any-return, no-untyped-call]


def slope(above: Tensor) -> Tensor:
    """Return 4 sigma(a) sigma(-a), at most 1, from sigma(a)."""
    return 4 * above * (1 - above)


class _ThresholdAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, v: Tensor, thresholds: Tensor) -> Tensor:
        v = v.contiguous()
        inv_norm = safe_inverse_(torch.linalg.vector_norm(v, dim=1))[:, None]
        x = v * inv_norm
        above = torch.sigmoid(edge_dot(graph, x, x) - at_users(graph, thresholds))  # (E,) sigma(a)
        w = slope(above) * symmetric_weights(graph, v.dtype)[: graph.num_edges]
        ctx.graph = graph
        ctx.save_for_backward(v, inv_norm, above, w)
        return spmm(graph, two_way(graph, w), v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        graph, grad = ctx.graph, grads[0].contiguous()
        v, inv_norm, above, w = ctx.saved_tensors
        x = v * inv_norm
        gw = edge_dot(graph, v, grad, add_to=edge_dot(graph, grad, v))  # (E,)
        ga = gw.mul_(w).mul_(1 - 2 * above)
        gx = spmm(graph, two_way(graph, ga), x)
        through = gx.addcmul_(x, row_dot(x, gx)[:, None], value=-1).mul_(inv_norm)
        return None, spmm(graph, two_way(graph, w), grad).add_(through), -user_sums(graph, ga)
