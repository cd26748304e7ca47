"""Negative items that are a pure function of (seed, step, edge): no generator state, any shard draws its own edges.

A negative of user u is uniform over the f_u items that u touches nowhere in training, drawn without retries:

1. Draw an item uniform over all m. It is nearly always free; a hash table of the training interactions decides most
   draws with one look-up, a binary search the others.
2. If it is one of the user's items, draw instead a rank r uniform in 0..f_u-1 and take the r-th free item. With
   p_0 < p_1 < ... the user's distinct items, p_t - t items before p_t are free, so that is r + #{t : p_t - t <= r}.

Step 1 yields each free item with chance 1/m and fails with chance (m - f_u)/m, so in all each has chance
1/m + (m - f_u)/m / f_u = 1/f_u.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph

_SLOTS_PER_PAIR = 4
_REGION_BITS = 18  # of the hash table: users that follow each other look into the same 256 KiB
_EDGES_AT_ONCE = 1 << 17  # their temporaries stay in the cache
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: its multiples spread evenly
_MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True, eq=False)
class NegativeSampler:
    """Draws negatives for the edges of one graph.

    Attributes:
        graph: the training interactions.
        free_items: (n,) f_u, how many items each user has not touched.
        first: (n,) where each user's entries start in `pairs` and `ranks`.
        pairs: sorted u m + p_t over the distinct interactions.
        ranks: sorted u (m + 1) + p_t - t over the same.
        table: slots, true where an interaction is hashed to; a user's are all in one region of 2^18.
    """

    graph: BipartiteGraph
    free_items: Tensor
    first: Tensor
    pairs: Tensor
    ranks: Tensor
    table: Tensor

    @classmethod
    def of(cls, graph: BipartiteGraph) -> "NegativeSampler":
        """Return the sampler of a graph, prepared once."""
        m = graph.num_items
        users = graph.edge_users.cpu().numpy().astype(np.int64)
        pairs = users * m + graph.edge_items.cpu().numpy() - graph.num_users
        fresh = np.concatenate([[True], pairs[1:] != pairs[:-1]])  # edges are sorted: parallel ones are neighbours
        pairs, users = pairs[fresh], users[fresh]
        count = np.bincount(users, minlength=graph.num_users)
        first = np.cumsum(count) - count
        ranks = pairs + users - (np.arange(len(users)) - first[users])
        free, first_, pairs_, ranks_ = (torch.from_numpy(a).to(graph.device) for a in (m - count, first, pairs, ranks))
        regions = (_SLOTS_PER_PAIR * len(pairs) >> _REGION_BITS) + 1
        table = torch.zeros(regions << _REGION_BITS, dtype=torch.bool, device=graph.device)
        for start in range(0, len(pairs), _EDGES_AT_ONCE):
            here = slice(start, start + _EDGES_AT_ONCE)
            owners = torch.from_numpy(users[here]).to(graph.device)
            table[_slot(pairs_[here], first_[owners])] = True
        return cls(graph, free, first_, pairs_, ranks_, table)

    def draw(self, seed: int, step: int, edges: Tensor | None = None) -> Tensor:
        """Return one negative item *node* (n + item) for each edge, (len(edges),) int32; all edges by default.

        A user who has every item has no negative: the edge's own item is returned, whose comparison with itself
        passes no gradient.
        """
        graph = self.graph
        total = graph.num_edges if edges is None else len(edges)
        result = graph.edge_items.new_empty(total)
        for start in range(0, total, _EDGES_AT_ONCE):
            stop = min(start + _EDGES_AT_ONCE, total)
            some = torch.arange(start, stop, device=graph.device) if edges is None else edges[start:stop]
            of = slice(start, stop) if edges is None else some
            result[start:stop] = self._draw_some(seed, step, some, graph.edge_users[of].long(), graph.edge_items[of])
        return result

    def _draw_some(self, seed: int, step: int, edges: Tensor, users: Tensor, own: Tensor) -> Tensor:
        """Return what `draw` does for some edges, from their numbers, users and items."""
        graph, m = self.graph, self.graph.num_items
        numbers = edges if graph.whole is None else edges + graph.whole.first_edge  # the same on any number of ranks
        drawn = (random_bits(seed, step, numbers) * m) >> 31
        keys = users * m + drawn
        suspects = self.table[_slot(keys, self.first[users])].nonzero().squeeze(1)
        keys = keys[suspects]
        position = torch.searchsorted(self.pairs, keys).clamp_(max=len(self.pairs) - 1)
        touched = suspects[self.pairs[position] == keys]
        drawn[touched] = self._draw_free(seed, step, numbers[touched], users[touched])
        return torch.where(drawn >= 0, drawn.int() + graph.num_users, own)

    def _draw_free(self, seed: int, step: int, edges: Tensor, users: Tensor) -> Tensor:
        """Return a free item for each edge by its rank among the user's free items, -1 where there is none."""
        free = self.free_items[users]
        rank = (random_bits(~seed, step, edges) * free) >> 31
        before = torch.searchsorted(self.ranks, users * (self.graph.num_items + 1) + rank, right=True)
        return torch.where(free > 0, rank + before - self.first[users], -1)


def _slot(keys: Tensor, first: Tensor) -> Tensor:
    """Return the table slot of each pair key: a multiplicative hash within the region of its user.

    The user's pairs start at `first`, which decides the region.
    """
    inside = (1 << _REGION_BITS) - 1
    hashed = ((keys * _signed64(_GOLDEN)) >> (64 - _REGION_BITS)) & inside
    return ((first * _SLOTS_PER_PAIR) & ~inside) | hashed


def random_bits(seed: int, step: int, counters: Tensor) -> Tensor:
    """Return 31 random bits per counter as int64, by two rounds of multiply-and-fold mixing of (seed, step, counter).

    Integer arithmetic only, so every machine, device and thread count gives the same bits.
    """
    key = (seed * 0xD1342543DE82EF95 + step * 0xA0761D6478BD642F + 0x632BE59BD9B4E019) % 2**64
    for constant in _MIXERS:
        key = ((key ^ (key >> 32)) * constant) % 2**64
    state = counters * _signed64(_GOLDEN) + _signed64(key ^ (key >> 29))
    for constant in _MIXERS:
        state = (state ^ ((state >> 32) & 0xFFFFFFFF)) * _signed64(constant)
    return (state >> 33) & 0x7FFFFFFF


def _signed64(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value
