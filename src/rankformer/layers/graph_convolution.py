"""The propagation step of graph convolutional networks: the symmetrically scaled graph with a loop at every node."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import at_neighbours, spmm


def self_loop_propagation(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    """Return D^-1/2 (A + I) D^-1/2 rows, (n+m, d), with D the degrees including the loop; differentiable in `rows`.

    out_v = rows_v / d_v + sum_{w in N_v} rows_w / sqrt(d_v d_w),  d_v = |N_v| + 1. Parallel edges count one by one, in
    the sums as in the degrees; a node without neighbours keeps its row. Eigenvalues lie in (-1, 1], the largest is 1.

    Args:
        graph: the training pairs.
        rows: (n+m, d), users first.
    """
    return _SelfLoopPropagation.apply(graph, rows)  # type: ignore[no-any-return, no-untyped-call]


class _SelfLoopPropagation(torch.autograd.Function):
    """The operator is symmetric: backward is forward on the gradient, and nothing is saved."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, rows: Tensor) -> Tensor:
        ctx.graph = graph
        rows = rows.detach().contiguous()
        edges, loops = _weights(graph, rows.dtype)
        return spmm(graph, edges, rows).addcmul_(rows, loops)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, self_loop_propagation(ctx.graph, grads[0])


# The weights depend on the graph alone: built at its first use, dropped with it.
_weights_of: WeakKeyDictionary[BipartiteGraph, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def _weights(graph: BipartiteGraph, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return 1 / sqrt(d_v d_w) as two-way values (2E,), and 1 / d_v (n+m, 1)."""
    weights = _weights_of.get(graph)
    if weights is None or weights[0].dtype != dtype:
        shrink = (graph.degree + 1).rsqrt().to(dtype)  # (n+m,)
        edges = at_neighbours(graph, shrink).mul_(shrink.index_select(0, graph.owners))
        weights = edges, (1 / (graph.degree + 1)).to(dtype)[:, None]
        _weights_of[graph] = weights
    return weights
