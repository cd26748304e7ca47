"""Negative items that are a pure function of (seed, step, edge): no generator state, any shard draws its own edges.

A negative of user u is uniform over the items u touches nowhere in training. Drawing is exact and needs no retries:
take a rank r uniform in 0..f_u-1, f_u the number of such items, and return the r-th of them. With p_0 < p_1 < ... the
user's distinct items, p_t - t items before p_t are free, so the r-th free item is r + #{t : p_t - t <= r}; that count
is one binary search in an array sorted once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph

_MASK31 = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class NegativeSampler:
    """Draws negatives for the edges of one graph.

    Attributes:
        graph: the training pairs.
        free_items: (n,) f_u, how many items each user has not touched.
        first: (n,) where each user's entries start in `keys`.
        keys: sorted u (m + 1) + (p_t - t) over the distinct pairs.
    """

    graph: BipartiteGraph
    free_items: Tensor
    first: Tensor
    keys: Tensor

    @classmethod
    def of(cls, graph: BipartiteGraph) -> "NegativeSampler":
        """Return the sampler of a graph, sorted once."""
        m = graph.num_items
        users = graph.edge_users.cpu().numpy().astype(np.int64)
        items = graph.edge_items.cpu().numpy().astype(np.int64) - graph.num_users
        fresh = np.ones(len(users), dtype=bool)  # parallel edges stand side by side: keep the first of each
        fresh[1:] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
        users, items = users[fresh], items[fresh]
        count = np.bincount(users, minlength=graph.num_users)
        first = np.cumsum(count) - count
        position = np.arange(len(users)) - first[users]
        keys = users * (m + 1) + items - position
        put = [torch.from_numpy(array).to(graph.device) for array in (m - count, first, keys)]
        return cls(graph, *put)

    def draw(self, seed: int, step: int, edges: Tensor | None = None) -> Tensor:
        """Return one negative item *node* (n + item) for each edge, (len(edges),) int32; all edges by default.

        A user who has every item has no negative: the edge's own item is returned, whose comparison with itself
        passes no gradient.
        """
        graph = self.graph
        users, items = graph.edge_users, graph.edge_items
        if edges is None:
            edges = torch.arange(graph.num_edges, device=graph.device)
        else:
            users, items = users[edges], items[edges]
        free = self.free_items.index_select(0, users)
        rank = (random_bits(seed, step, edges) * free) >> 31
        keys = users * (graph.num_items + 1) + rank
        found = torch.searchsorted(self.keys, keys, right=True) - self.first.index_select(0, users)
        return torch.where(free > 0, (rank + found).int() + graph.num_users, items)


def random_bits(seed: int, step: int, counters: Tensor) -> Tensor:
    """Return 31 random bits per counter as int64, by two rounds of multiply-and-fold mixing of (seed, step, counter).

    Each round multiplies by an odd 62-bit constant and folds the high half onto the low half. Integer arithmetic
    only, so every machine, device and thread count gives the same bits.
    """
    state = counters * _signed64(0x9E3779B97F4A7C15) + _signed64(_mix_scalar(seed, step))
    for constant in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        state = (state ^ ((state >> 32) & 0xFFFFFFFF)) * _signed64(constant)
    return (state >> 33) & _MASK31


def _mix_scalar(seed: int, step: int) -> int:
    """Return 64 mixed bits of (seed, step)."""
    state = (seed * 0xD1342543DE82EF95 + step * 0xA0761D6478BD642F + 0x632BE59BD9B4E019) % 2**64
    for constant in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        state = ((state ^ (state >> 32)) * constant) % 2**64
    return state ^ (state >> 29)


def _signed64(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value
