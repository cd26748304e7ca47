"""Plain neighbour averages: Rankformer's warm-up layer."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from rankformer.graph.bipartite import BipartiteGraph


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
