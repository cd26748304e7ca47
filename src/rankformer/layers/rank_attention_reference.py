"""The Rankformer layer as the paper writes it: dense, O(nmd), for tests and small data."""

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.rank_weights import RankWeights


def rank_attention_reference(
    graph: BipartiteGraph, z: Tensor, weights: RankWeights | None = None, tau: float = 1.0, *, estimate: bool = False
) -> Tensor:
    """Return (1 - tau) z + tau R(z), Eq. 5, (n+m, d) with users first.

    A pair with c parallel edges counts c times among the positives and 1 - c times among the negatives, degrees
    included, as the paper's code does; without duplicates that is 1 or 0. With weights it counts their sum a among the
    positives and still 1 - c times among the negatives. Any alpha is exact here.

    Args:
        graph: the training interactions.
        z: (n+m, d) layer input, users first.
        weights: the terms of Omega; Eq. 6 by default.
        tau: step size.
        estimate: compute the negative sums of Eq. 8 as the linear form does, max(-+sum Omega-, floor) in place of
            sum |Omega-|. Changes nothing where `weights.exact_normalizer` holds.
    """
    weights = weights or RankWeights()
    n, m = graph.num_users, graph.num_items
    users, items = z[:n], z[n:]
    c = count_matrix(graph.unweighted(), z.dtype)  # (n, m) how often each pair is an edge
    a = count_matrix(graph, z.dtype)  # (n, m) the same, or the sum of the weights
    count = c.sum(1, keepdim=True)  # (n, 1)
    d_pos, d_neg = graph.divisor[:n].to(z.dtype)[:, None], (m - count).clamp(min=1)
    sim = weights.curvature * unit_rows(users) @ unit_rows(items).T  # (n, m) in [-1, 1], Sec. 3.3
    b_pos = (sim * a).sum(1, keepdim=True) / d_pos  # (n, 1) Eq. 7
    b_neg = (sim * (1 - c)).sum(1, keepdim=True) / d_neg
    s = sim if weights.similarity else torch.zeros_like(sim)
    beta = 1.0 if weights.benchmark else 0.0
    omega_pos = (s - beta * b_neg + weights.alpha) / d_pos  # (n, m) Eq. 6
    omega_neg = {
        "push": (s - beta * b_pos - weights.alpha) / d_neg,
        "pull": s / count.clamp(min=1),
        "none": torch.zeros_like(s),
    }[weights.negatives]
    omega = a * omega_pos + (1 - c) * omega_neg  # (n, m) one matrix for both directions
    y = torch.cat([omega @ items, omega.T @ users])
    if weights.normalize:
        positive = a * omega_pos.abs()  # Eq. 8
        if estimate and not weights.exact_normalizer:
            sign = 1.0 if weights.negatives == "pull" else -1.0
            negative = sign * (1 - c) * omega_neg
            sums = [negative.sum(1).clamp(min=weights.floor), negative.sum(0).clamp(min=weights.floor)]
        else:
            negative = (1 - c) * omega_neg.abs()
            sums = [negative.sum(1), negative.sum(0)]
        total = torch.cat([positive.sum(1) + sums[0], positive.sum(0) + sums[1]])
        y = y * safe_inverse(total)[:, None]
    return (1 - tau) * z + tau * y


def count_matrix(graph: BipartiteGraph, dtype: torch.dtype) -> Tensor:
    """Return the dense (n, m) number of parallel edges of every pair, or the sum of their weights."""
    counts = torch.zeros(graph.num_users, graph.num_items, dtype=dtype, device=graph.device)
    one = torch.ones((), device=graph.device) if graph.edge_weights is None else graph.edge_weights
    pairs = graph.edge_users.long(), graph.edge_items.long() - graph.num_users
    return counts.index_put_(pairs, one.to(dtype), accumulate=True)


def unit_rows(z: Tensor) -> Tensor:
    """Return rows of length 1; a zero row stays zero and passes no gradient on."""
    return z * safe_inverse(torch.linalg.vector_norm(z, dim=1))[:, None]


def safe_inverse(values: Tensor) -> Tensor:
    """Return 1/x, and 0 (with no gradient) where x is 0."""
    zero = values == 0
    return torch.where(zero, 0.0, 1.0 / torch.where(zero, 1.0, values))
