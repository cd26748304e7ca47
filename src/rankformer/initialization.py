"""Initialization of embedding tables, for every model that has one.

    normal           N(0, 0.1^2)
    xavier-uniform   U(-a, a), a = sqrt(6 / (count + d)), users and items separately
    xavier-normal    N(0, 2 / (count + d)), users and items together
    spectral         leading singular vectors of D_u^-1/2 A D_i^-1/2, entries of size 0.1
    least-squares    weighted least-squares factors of A, each side scaled to a given size

The first three need no data and are drawn by `random_table`; `initialize_` sets the other two. `grow_` continues from
the table of an earlier fit.
"""

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from rankformer.errors import TrainingError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.graph.random_rows import drawn_rows
from rankformer.graph.sparse_ops import bag_sum

# Chosen on the validation parts of ali-display and epinions together (experiments/LOG.md).
LEAST_SQUARES: dict[str, Any] = {
    "weight": 80.0,
    "regularization": 300 / 79,
    "frequency_exponent": 0.0,
    "iterations": 15,
    "linear_iterations": 10,  # 15 cost Rankformer .4 %; with none a few rows follow rounding
}

# What torch and NumPy raise where a decomposition does not converge.
NOT_SOLVED = (torch.linalg.LinAlgError, np.linalg.LinAlgError)  # type: ignore[attr-defined]

_KEPT: WeakKeyDictionary[BipartiteGraph, dict[tuple[int, int], Tensor]] = WeakKeyDictionary()
_MOST_KEPT = 2**26  # numbers of one table
_OVERSAMPLE = 16
_POWER_ITERATIONS = 6


def random_table(
    kind: str, num_users: int, num_items: int, dim: int, seed: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return the random table that `kind` names, (n+m, d); normal for the kinds that `initialize_` sets.

    The seed decides the draws; a generator draws the Xavier kinds in place of one made from it.
    """
    seeded = torch.Generator().manual_seed(seed)
    draws = seeded if generator is None else generator
    if kind == "xavier-normal":
        return nn.init.xavier_normal_(torch.empty(num_users + num_items, dim), generator=draws)
    if kind == "xavier-uniform":
        sides = (torch.empty(count, dim) for count in (num_users, num_items))
        return torch.cat([nn.init.xavier_uniform_(side, generator=draws) for side in sides])
    return torch.randn(num_users + num_items, dim, generator=seeded) * 0.1


def random_rows(graph: BipartiteGraph, kind: str, dim: int, seed: int) -> Tensor:
    """Return the rows of a rank's graph out of the table that `random_table` draws from a seed, in bounded memory."""
    generator, (users, items) = torch.Generator().manual_seed(seed), graph.node_ranges
    n, m = graph.all_users, graph.num_items
    if kind == "xavier-uniform":
        a, b = (math.sqrt(6 / (count + dim)) for count in (n, m))
        first = drawn_rows(n, dim, [users], lambda block: block.uniform_(-a, a, generator=generator))
        second = drawn_rows(m, dim, [(0, m)], lambda block: block.uniform_(-b, b, generator=generator))
        return torch.cat([first, second])
    if kind == "xavier-normal":
        std = math.sqrt(2 / (n + m + dim))
        return drawn_rows(n + m, dim, [users, items], lambda block: block.normal_(0, std, generator=generator))
    return drawn_rows(n + m, dim, [users, items], lambda block: block.normal_(generator=generator)) * 0.1


def initialize_(table: Tensor, graph: BipartiteGraph, kind: str, seed: int, scale: float = 0.1) -> None:
    """Set a random table, in place, to what `kind` makes of the training interactions; random kinds stay as drawn.

    Args:
        table: (n+m, d).
        graph: the training interactions.
        kind: a name of the module docstring.
        seed: of the random vectors that iterations start from.
        scale: root mean square of the entries of a least-squares table, on each side.

    Raises:
        TrainingError: the weights of the interactions are too far apart.
    """
    with torch.no_grad():
        if kind == "spectral":
            table.copy_(spectral_table(graph, table.shape[1], seed))
        elif kind == "least-squares":
            factors = least_squares_table(graph, table.shape[1], seed)
            # Factors of small separate parts of the graph shrink to 0; these nodes stay random.
            found = torch.linalg.vector_norm(factors, dim=1) > 1e-3
            table[found] = factors[found].to(table.device)
            table.mul_(scale)


def least_squares_table(graph: BipartiteGraph, dim: int, seed: int) -> Tensor:
    """Return (n+m, dim) weighted least-squares factors of the interactions, entries of size 1 on each side.

    Those of a graph are kept as long as it lives, unless they are large: a search fits many models to one graph.
    """
    kept = _KEPT.setdefault(graph, {})
    if (dim, seed) in kept:
        return kept[dim, seed]
    try:
        factors = least_squares_factors(graph, dim, seed, **LEAST_SQUARES)
    except NOT_SOLVED:
        advice = "check the weights of the interactions, or set another one"
        raise TrainingError(f"step 0: initialization=least-squares has no finite solution; {advice}") from None
    users, items = factors[: graph.num_users], factors[graph.num_users :]
    users /= users_mean(graph, users.square()).sqrt().clamp(min=1e-12)
    items /= items.square().mean().sqrt().clamp(min=1e-12)
    if factors.numel() <= _MOST_KEPT:
        kept[dim, seed] = factors
    return factors


def grow_(table: Tensor, old: Tensor, old_users: int, graph: BipartiteGraph) -> None:
    """Set a random table, in place, to an older one of fewer users and items, whose indices come first.

    A new node gets the direction of the sum of its known neighbours and the usual length of its side; one without such
    neighbours is reached through new ones, and what is not reached stays random.
    """
    n, old_items = graph.num_users, len(old) - old_users
    with torch.no_grad():
        lengths, known = torch.linalg.vector_norm(old, dim=1), torch.zeros_like(table[:, :1])
        usual = torch.ones_like(known)
        usual[:n], usual[n:] = lengths[:old_users].mean(), lengths[old_users:].mean()
        for rows, values in ((slice(0, old_users), old[:old_users]), (slice(n, n + old_items), old[old_users:])):
            table[rows], known[rows] = values.to(table.device), 1.0
        weights = torch.ones_like(graph.neighbours, dtype=table.dtype) if graph.weights is None else graph.weights
        for _ in range(2):
            sums = bag_sum(graph.neighbours, table * known, graph.ptr, weights)
            found = (known[:, 0] == 0) & (sums != 0).any(1)
            table[found] = torch.nn.functional.normalize(sums[found], dim=1) * usual[found]
            known[found] = 1.0


def spectral_table(graph: BipartiteGraph, dim: int, seed: int, std: float = 0.1) -> Tensor:
    """Return (n+m, dim) embeddings: leading singular vectors of D_u^-1/2 A D_i^-1/2, entries of size `std`.

    Found by block power iteration from seeded vectors, Q_u <- orth(A Q_i), Q_i <- A^T Q_u, and a thin SVD of the last
    Q_i = U S V^T: items U, users Q_u V. Columns beyond the rank of A are random.
    """
    n, m, edges, users = graph.num_users, graph.num_items, graph.num_edges, graph.all_users
    generator = torch.Generator().manual_seed(seed)
    table = drawn_rows(users + m, dim, graph.node_ranges, lambda block: block.normal_(generator=generator)) * std
    columns = min(dim + _OVERSAMPLE, users, m)
    shrink = graph.divisor.rsqrt().float()
    weights = shrink[graph.owners] * shrink[graph.neighbours]  # (2E,)
    weights = weights if graph.weights is None else weights * graph.weights
    item_nodes, item_ptr = graph.neighbours[:edges] - n, graph.ptr[n:] - edges
    q_items = torch.randn(m, columns, generator=generator).to(graph.device)
    for _ in range(_POWER_ITERATIONS):
        q_items = torch.linalg.qr(q_items).Q
        q_users = _orthonormal(graph, bag_sum(item_nodes, q_items, graph.ptr[: n + 1], weights[:edges]))
        q_items = bag_sum(graph.neighbours[edges:], q_users, item_ptr, weights[edges:])
        graph.ranks.sum_(q_items)
    left, _, right = torch.linalg.svd(q_items, full_matrices=False)
    found = min(dim, columns)
    table[:n, :found] = (q_users @ right.T[:, :found]).cpu() * (std * math.sqrt(users))
    table[n:, :found] = left[:, :found].cpu() * (std * math.sqrt(m))
    return table


def users_mean(graph: BipartiteGraph, values: Tensor) -> Tensor:
    """Return the mean of values of the users, (n, d), over the users of all ranks."""
    if graph.ranks.alone:
        return values.mean()
    total = values.sum()
    graph.ranks.sum_(total)
    return total / (graph.all_users * values.shape[1])


def _orthonormal(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    """Return Q of the QR decomposition of rows of users, (n, c), over the users of all ranks."""
    q: Tensor
    q, r = torch.linalg.qr(rows)
    if graph.ranks.alone:
        return q
    first, _ = graph.ranks.before(len(r))
    joint: Tensor = torch.linalg.qr(torch.from_numpy(graph.ranks.joined(r.cpu().numpy())).to(rows.device)).Q
    return q @ joint[first : first + len(r)]
