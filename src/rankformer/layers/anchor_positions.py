"""Where a node stands in the graph, told by how far it is from a few anchor nodes.

With anchors t_1..t_a and S_jv = 1 / (dist(t_j, v) + 1), 0 where v cannot be reached, a layer with W = [W1 W2] and b is

    out_v = mean_j (W1 S_jv x_{t_j} + W2 x_v + b) = W1 (1/a sum_j S_jv x_{t_j}) + W2 x_v + b

The right-hand form takes O(N a d) time and O(N (a + d)) memory. The official code of GFormer tiles and reshapes x where
x_v should stand, so that it adds W2 times the mean of the a rows x_{(v a + j) mod N}: `self_feature="official"`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.seeded import uniform_linear

SelfFeature = Literal["correct", "official"]
_BITS = 64


@dataclass(frozen=True, eq=False)
class Anchors:
    """Anchor nodes and every node's nearness to each.

    Attributes:
        nodes: (a,) the anchors.
        nearness: (N, a) the transpose of S.
    """

    nodes: Tensor
    nearness: Tensor


def draw_anchors(graph: BipartiteGraph, count: int, generator: torch.Generator) -> Anchors:
    """Return anchors drawn uniformly without replacement from all nodes; all nodes if `count` exceeds them."""
    nodes = torch.randperm(graph.num_nodes, generator=generator)[:count]
    steps = torch.from_numpy(distances(graph, nodes.numpy())).to(graph.device)
    nearness = torch.where(steps >= 0, 1 / (steps + 1.0), 0.0)
    return Anchors(nodes.to(graph.device), nearness.T.contiguous())


def distances(graph: BipartiteGraph, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return how many edges away every node is from each of the given ones, (a, N); -1 if it cannot be reached."""
    result = np.full((len(nodes), graph.num_nodes), -1, dtype=np.int32)
    for start in range(0, len(nodes), _BITS):
        _sweep(graph, nodes[start : start + _BITS], result[start : start + _BITS])
    return result


def _sweep(graph: BipartiteGraph, nodes: NDArray[np.int64], result: NDArray[np.int32]) -> None:
    """Fill the distances from up to 64 nodes at once, by breadth-first search on one bit per node of origin."""
    neighbours, ptr = graph.neighbours.cpu().numpy(), graph.ptr.cpu().numpy()
    joined = np.flatnonzero(np.diff(ptr))  # reduceat has no empty segments
    bits = np.uint64(1) << np.arange(len(nodes), dtype=np.uint64)
    reached = np.zeros(graph.num_nodes, dtype=np.uint64)
    np.bitwise_or.at(reached, nodes, bits)
    fresh, steps = reached.copy(), 0
    while fresh.any():
        touched = np.flatnonzero(fresh)
        places, origins = np.nonzero(fresh[touched, None] & bits)
        result[origins, touched[places]] = steps
        arriving = np.zeros_like(fresh)
        arriving[joined] = np.bitwise_or.reduceat(fresh[neighbours], ptr[joined])
        fresh = arriving & ~reached
        reached |= fresh
        steps += 1


class PositionLayer(nn.Module):
    """One such layer with its W (d, 2d) and b (d,), started as torch starts a linear layer.

    Args:
        width: d.
        generator: draws the start.
        self_feature: "correct" for x_v in the second term, "official" for the official code's rows.
    """

    def __init__(self, width: int, generator: torch.Generator, self_feature: SelfFeature = "correct") -> None:
        super().__init__()
        self.linear = uniform_linear(2 * width, width, generator)
        self.self_feature = self_feature

    def forward(self, rows: Tensor, anchors: Anchors) -> Tensor:
        """Return the rows with their positions, (N, d)."""
        from_anchors, from_self = self.linear.weight.chunk(2, dim=1)
        at_anchors = linear(rows[anchors.nodes], from_anchors) / len(anchors.nodes)
        own = rows if self.self_feature == "correct" else window_means(rows, len(anchors.nodes))
        return linear(own, from_self, self.linear.bias) + anchors.nearness.to(rows.dtype) @ at_anchors


def window_means(rows: Tensor, length: int) -> Tensor:
    """Return the mean of rows (v a) mod N to (v a + a - 1) mod N for every v, a the length, (N, d)."""
    return _WindowMeans.apply(rows, length)  # type: ignore[no-any-return, no-untyped-call]


class _WindowMeans(torch.autograd.Function):
    """Slot e of N a holds row e mod N and belongs to window e // a; row c is in the slots c, c + N, c + 2N ..."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, length: int) -> Tensor:
        ctx.length, size = length, len(rows)
        slots = torch.arange(size * length, device=rows.device).view(size, length)
        return embedding_bag(slots % size, rows.detach(), mode="mean")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        length, size = ctx.length, len(grads[0])
        slots = torch.arange(size * length, device=grads[0].device).view(length, size).T
        return embedding_bag((slots // length).contiguous(), grads[0].contiguous(), mode="mean"), None
