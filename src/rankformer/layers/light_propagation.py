"""Propagation without attention: Rankformer's warm-up layer, LightGCN's layers, and graph convolution with loops.

Parallel edges count one by one and weighted ones by their weight, in the sums as in the degrees: A holds the weights.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import at_neighbours, spmm, spmm_whole


def neighbour_means(graph: BipartiteGraph, z: Tensor) -> Tensor:
    """Return the mean of each node's neighbour rows, (n+m, d); zero for a node without neighbours.

    v_u = 1/d_u sum_{i in N_u} z_i,  v_i = 1/d_i sum_{u in N_i} z_u.
    """
    return _NeighbourMeans.apply(graph, z)  # type: ignore[no-any-return, no-untyped-call]


class _NeighbourMeans(torch.autograd.Function):
    """The operator is D^-1 A, its adjoint A D^-1: no other edge weights than A's are needed in either direction."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, z: Tensor) -> Tensor:
        ctx.graph = graph
        sums = _neighbour_sums(graph, z.detach())
        graph.ranks.sum_(sums[graph.num_users :])
        return sums.mul_(_inverse_degree(graph, z.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        grad = ctx.graph.whole_gradient(grads[0])
        return None, _neighbour_sums(ctx.graph, grad * _inverse_degree(ctx.graph, grad.dtype))


def _neighbour_sums(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    if graph.weights is not None:
        return spmm(graph, graph.weights.to(rows.dtype), rows)
    return embedding_bag(graph.neighbours, rows, graph.ptr, mode="sum", include_last_offset=True)


def _inverse_degree(graph: BipartiteGraph, dtype: torch.dtype) -> Tensor:
    return (1 / graph.divisor).to(dtype)[:, None]  # (n+m, 1)


def light_propagation(graph: BipartiteGraph, z: Tensor, num_layers: int) -> Tensor:
    """Return the mean of z, T z, ..., T^K z with T = D^-1/2 A D^-1/2, (n+m, d) like z; z itself for K = 0 layers.

    (T z)_u = sum_{i in N_u} z_i / sqrt(d_u d_i), and likewise for items. A node without neighbours gets z / (K + 1).
    With M_k the mean of the first k + 1 powers, M_0 = z and M_k = k/(k+1) T M_{k-1} + 1/(k+1) z. So each layer is one
    SpMM and one interpolation in place, and neither a sum of layers nor a final scaling is ever kept.
    """
    weights = symmetric_weights(graph, z.dtype)

    def mean_of_powers(rows: Tensor) -> Tensor:
        mean = rows
        for k in range(1, num_layers + 1):
            mean = spmm_whole(graph, weights, mean).lerp_(rows, 1 / (k + 1))
        return mean

    return z if num_layers == 0 else _apply_symmetric(graph, mean_of_powers, z)


def self_loop_propagation(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    """Return D^-1/2 (A + I) D^-1/2 rows, (n+m, d), with D the degrees including the loop; differentiable in `rows`.

    out_v = rows_v / d_v + sum_{w in N_v} rows_w / sqrt(d_v d_w),  d_v = |N_v| + 1: the step of graph convolutional
    networks. A node without neighbours keeps its row. Eigenvalues lie in (-1, 1], the largest is 1.
    """
    edges = symmetric_weights(graph, rows.dtype, loops=1)
    loops = (1 / (graph.degree + 1)).to(rows.dtype)[:, None]
    return _apply_symmetric(graph, lambda x: spmm(graph, edges, x).addcmul_(x, loops), rows)


def _apply_symmetric(graph: BipartiteGraph, operator: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    return _Symmetric.apply(graph, operator, rows)  # type: ignore[no-any-return, no-untyped-call]


class _Symmetric(torch.autograd.Function):
    """A symmetric operator is its own adjoint: backward is forward on the gradient, and nothing is saved."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, operator: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        ctx.graph, ctx.operator = graph, operator
        return operator(rows.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        graph = ctx.graph
        return None, None, graph.once(_apply_symmetric(graph, ctx.operator, graph.whole_gradient(grads[0])))


# The weights depend on the graph alone: built at their first use, dropped with it.
_weights_of: WeakKeyDictionary[BipartiteGraph, dict[tuple[torch.dtype, int], Tensor]] = WeakKeyDictionary()


def symmetric_weights(graph: BipartiteGraph, dtype: torch.dtype, loops: int = 0) -> Tensor:
    """Return the entries A_ui / sqrt(d_u d_i) as two-way values (2E,), degrees including `loops` loops at each node."""
    known = _weights_of.setdefault(graph, {})
    if (dtype, loops) not in known:
        shrink = (graph.degree + loops if loops else graph.divisor).rsqrt().to(dtype)  # (n+m,)
        entries = at_neighbours(graph, shrink).mul_(shrink.index_select(0, graph.owners))
        known[dtype, loops] = entries if graph.weights is None else entries.mul_(graph.weights.to(dtype))
    return known[dtype, loops]
