"""Propagation without attention: Rankformer's warm-up layer, and LightGCN's layers."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import at_neighbours, spmm


def neighbour_means(graph: BipartiteGraph, z: Tensor) -> Tensor:
    """Return the mean of each node's neighbour rows, (n+m, d); zero for a node without neighbours.

    v_u = 1/d_u sum_{i in N_u} z_i,  v_i = 1/d_i sum_{u in N_i} z_u.
    """
    return _NeighbourMeans.apply(graph, z)  # type: ignore[no-any-return, no-untyped-call]


class _NeighbourMeans(torch.autograd.Function):
    """The operator is D^-1 A, its adjoint A D^-1: no edge weights are needed in either direction."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, z: Tensor) -> Tensor:
        ctx.graph = graph
        return _neighbour_sums(graph, z.detach()).mul_(_inverse_degree(graph, z.dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        graph: BipartiteGraph = ctx.graph
        return None, _neighbour_sums(graph, grads[0] * _inverse_degree(graph, grads[0].dtype))


def _neighbour_sums(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    return embedding_bag(graph.neighbours, rows, graph.ptr, mode="sum", include_last_offset=True)


def _inverse_degree(graph: BipartiteGraph, dtype: torch.dtype) -> Tensor:
    return (1 / graph.degree.clamp(min=1)).to(dtype)[:, None]  # (n+m, 1)


def light_propagation(graph: BipartiteGraph, z: Tensor, num_layers: int) -> Tensor:
    """Return the mean of z, T z, ..., T^K z with T = D^-1/2 A D^-1/2, (n+m, d); z itself for K = 0.

    (T z)_u = sum_{i in N_u} z_i / sqrt(d_u d_i), and likewise for items. A node without neighbours gets z / (K + 1).
    Parallel edges count one by one, in the sums as in the degrees.

    Args:
        graph: the training pairs.
        z: (n+m, d) rows, users first.
        num_layers: K.
    """
    if num_layers == 0:
        return z
    return _LightPropagation.apply(graph, z, num_layers)  # type: ignore[no-any-return, no-untyped-call]


class _LightPropagation(torch.autograd.Function):
    """A polynomial of the symmetric T is its own adjoint: backward is forward on the gradient, and saves nothing.

    With M_k the mean of the first k + 1 powers, M_0 = z and M_k = k/(k+1) T M_{k-1} + 1/(k+1) z. So each layer is one
    SpMM and one interpolation in place, and neither a sum of layers nor a final scaling is ever kept.
    """

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, z: Tensor, num_layers: int) -> Tensor:
        ctx.fixed = graph, num_layers
        z = z.detach().contiguous()
        weights = symmetric_weights(graph, z.dtype)
        mean = z
        for k in range(1, num_layers + 1):
            mean = spmm(graph, weights, mean).lerp_(z, 1 / (k + 1))
        return mean

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        graph, num_layers = ctx.fixed
        return None, light_propagation(graph, grads[0], num_layers), None


# The weights depend on the graph alone: built at its first use, dropped with it.
_weights_of: WeakKeyDictionary[BipartiteGraph, Tensor] = WeakKeyDictionary()


def symmetric_weights(graph: BipartiteGraph, dtype: torch.dtype) -> Tensor:
    """Return the entries 1 / sqrt(d_u d_i) of T as two-way values (2E,)."""
    weights = _weights_of.get(graph)
    if weights is None or weights.dtype != dtype:
        shrink = graph.degree.clamp(min=1).rsqrt().to(dtype)  # (n+m,)
        weights = at_neighbours(graph, shrink).mul_(shrink.index_select(0, graph.owners))
        _weights_of[graph] = weights
    return weights
