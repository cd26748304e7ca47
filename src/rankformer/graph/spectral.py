"""Where training may start: the leading singular vectors of the normalised interaction matrix."""

import math

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import bag_sum

_OVERSAMPLE = 16
_ROUNDS = 6


def spectral_rows(graph: BipartiteGraph, dim: int, seed: int, std: float = 0.1) -> Tensor:
    """Return (n+m, dim) rows, users first: the leading singular vectors of D_u^-1/2 A D_i^-1/2, entries of size `std`.

    Found by block power iteration from a seeded start, Q_u <- orth(A Q_i), Q_i <- A^T Q_u, and a thin SVD of the last
    Q_i = U S V^T: items U, users Q_u V. Columns beyond the rank of A are random, as a usual start would be.
    """
    n, m, edges = graph.num_users, graph.num_items, graph.num_edges
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n + m, dim, generator=generator) * std
    width = min(dim + _OVERSAMPLE, n, m)
    shrink = graph.degree.clamp(min=1).rsqrt().float()
    weights = shrink[graph.owners] * shrink[graph.neighbours]  # (2E,)
    item_nodes, item_ptr = graph.neighbours[:edges] - n, graph.ptr[n:] - edges
    q_items = torch.randn(m, width, generator=generator).to(graph.device)
    for _ in range(_ROUNDS):
        q_items = torch.linalg.qr(q_items).Q
        q_users = torch.linalg.qr(bag_sum(item_nodes, q_items, graph.ptr[: n + 1], weights[:edges])).Q
        q_items = bag_sum(graph.neighbours[edges:], q_users, item_ptr, weights[edges:])
    left, _, right = torch.linalg.svd(q_items, full_matrices=False)
    found = min(dim, width)
    rows[:n, :found] = (q_users @ right.T[:, :found]).cpu() * (std * math.sqrt(n))
    rows[n:, :found] = left[:, :found].cpu() * (std * math.sqrt(m))
    return rows
