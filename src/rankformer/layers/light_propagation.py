"""Plain neighbour averages: Rankformer's warm-up layer."""

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import propagate


def neighbour_means(graph: BipartiteGraph, z: Tensor) -> Tensor:
    """Return the mean of each node's neighbour rows, (n+m, d); zero for a node without neighbours.

    v_u = 1/d_u sum_{i in N_u} z_i,  v_i = 1/d_i sum_{u in N_i} z_u.
    """
    ones = torch.ones(graph.num_edges, dtype=z.dtype, device=z.device)
    return propagate(graph, ones, z) * (1 / graph.degree.clamp(min=1)).to(z.dtype)[:, None]
