"""Positions of nodes in the graph, given by their distances to a few anchor nodes.

With anchors t_1..t_a and S_jv = 1 / (dist(t_j, v) + 1), 0 where v cannot be reached, a layer with W = [W1 W2] and b is

    out_v = mean_j (W1 S_jv x_{t_j} + W2 x_v + b) = W1 (1/a sum_j S_jv x_{t_j}) + W2 x_v + b

The right-hand form takes O(N a d) time and O(N (a + d)) memory. The official code of GFormer tiles and reshapes x where
x_v should be, so that it adds W2 times the mean of the a rows x_{(v a + j) mod N}: `self_feature="official"`.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.seeded import uniform_linear

SelfFeature = Literal["correct", "official"]


class Anchors(NamedTuple):
    """Anchor nodes (a,), and every node's nearness to each, the transpose of S, (N, a)."""

    nodes: Tensor
    nearness: Tensor


def draw_anchors(graph: BipartiteGraph, count: int, generator: torch.Generator) -> Anchors:
    """Return anchors drawn uniformly without replacement from all nodes; all nodes if `count` exceeds them."""
    nodes = torch.randperm(graph.num_nodes, generator=generator)[:count]
    nearness = torch.from_numpy(1 / (distances(graph, nodes.numpy()) + 1)).float()
    return Anchors(nodes.to(graph.device), nearness.T.contiguous().to(graph.device))


def distances(graph: BipartiteGraph, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many edges away every node is from each of the given ones, (a, N); infinity where there is no path."""
    pattern = graph.neighbours.cpu().numpy(), graph.ptr.cpu().numpy()
    matrix = csr_array((np.ones(len(pattern[0])), *pattern), shape=(graph.num_nodes, graph.num_nodes))
    return np.asarray(dijkstra(matrix, unweighted=True, indices=nodes))


class PositionLayer(nn.Module):
    """One such layer of dimension d, with its W (d, 2d) and b (d,), initialized as torch does a linear layer."""

    def __init__(self, dim: int, generator: torch.Generator, self_feature: SelfFeature = "correct") -> None:
        super().__init__()
        self.linear = uniform_linear(2 * dim, dim, generator)
        self.self_feature = self_feature

    def forward(self, rows: Tensor, anchors: Anchors) -> Tensor:
        from_anchors, from_self = self.linear.weight.chunk(2, dim=1)
        at_anchors = linear(rows[anchors.nodes], from_anchors) / len(anchors.nodes)
        at_self = rows if self.self_feature == "correct" else window_means(rows, len(anchors.nodes))
        return linear(at_self, from_self, self.linear.bias) + anchors.nearness.to(rows.dtype) @ at_anchors


def window_means(rows: Tensor, length: int) -> Tensor:
    """Return the mean of rows (v a) mod N to (v a + a - 1) mod N for every v, a the length, (N, d)."""
    slots = torch.arange(len(rows) * length, device=rows.device).view(len(rows), length)
    return embedding_bag(slots % len(rows), rows, mode="mean")
