"""The training interactions as a fixed sparse pattern, sorted once by user and once by item."""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.data.cleaning import distinct
from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.graph.collectives import ALONE, Ranks


@dataclass(frozen=True, eq=False)
class BipartiteGraph:
    """E edges between n users and m items, in both orders; duplicate interactions are parallel edges.

    Nodes are numbered users first: user u is node u, item i is node n + i. An *edge value* is a number per edge, (E,)
    in user order (sorted by user, then item). A *two-way value* is (2E,): the edge values in user order, then the same
    in item order, so that entry ptr[v]:ptr[v+1] belongs to node v, user or item. Degrees count parallel edges. With
    weights an edge counts as that many parallel ones, in degrees and sums; without, nothing is multiplied anywhere.

    Attributes:
        num_users: n.
        num_items: m.
        ptr: (n+m+1,) where each node's entries start in a two-way value.
        neighbours: (2E,) the node at the far end of each entry.
        owners: (2E,) the node that each entry belongs to.
        item_order: (E,) the edges, numbered in user order, in item order.
        degree: (n+m,) float64 number of edges of each node, d_u then d_i, or the sum of their weights.
        pattern: the (n, n+m) sparse CSR tensor of zeros on the edges, which `edge_dot` fills.
        weights: (2E,) two-way weights of the edges, above 0, or None where each counts 1.
        ranks: who shares the work. A rank's graph has the users of its block alone, with their edges, and all items;
            the degree of an item counts the edges of all ranks.
        whole: where the block lies in the whole; None for a graph that is the whole.
    """

    num_users: int
    num_items: int
    ptr: Tensor
    neighbours: Tensor
    owners: Tensor
    item_order: Tensor
    degree: Tensor
    pattern: Tensor
    weights: Tensor | None = None
    ranks: Ranks = ALONE
    whole: "Whole | None" = None

    @classmethod
    def from_interactions(
        cls,
        data: Interactions,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        weighted: bool = False,
    ) -> "BipartiteGraph":
        """Return the graph of all interactions of `data`, `weighted` by their confidence where they have one."""
        if not len(data):
            raise DataError(f"{data.name} has no interaction to build a graph from; give at least one")
        weights = data.confidence if weighted else None
        if weights is not None and weights.min() <= 0:
            found = f"{(weights <= 0).sum():,} interactions of weight 0 or less, the least {weights.min():g}"
            raise DataError(
                f"{data.name} has {found}; weights that count are above 0: drop these with min_weight (--min-weight), "
                "or read no weights (--weight-column '')"
            )
        size = data.num_users, data.num_items
        graph = cls.from_pairs(data.users, data.items, *size, weights=weights, device=device, dtype=dtype)
        return graph if data.block is None else graph.joined(Ranks.current)

    def joined(self, ranks: Ranks) -> "BipartiteGraph":
        """Return the graph of a rank's block of users as part of the whole; each rank calls this with its own."""
        users, edges = ranks.before(self.num_users), ranks.before(self.num_edges)
        degree = self.degree.clone()
        ranks.sum_(degree[self.num_users :], exact=True)
        total = ranks.total(float(self.degree[: self.num_users].sum()))[0]
        return replace(self, degree=degree, ranks=ranks, whole=Whole(*users, *edges, total))

    @classmethod
    def from_pairs(
        cls,
        users: ArrayLike,
        items: ArrayLike,
        num_users: int,
        num_items: int,
        *,
        weights: ArrayLike | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "BipartiteGraph":
        """Return the graph with an edge for each pair of user and item indices (E,), duplicates as parallel edges.

        The pairs may be in any order; weights (E,) above 0 belong to them. `edge_dot` will produce values of the given
        type on this graph.
        """
        n, m = num_users, num_items
        left, right = np.asarray(users), np.asarray(items)
        size = len(left)
        if left.ndim != 1 or left.shape != right.shape or not size:
            raise DataError(f"a graph needs as many users as items, at least one; found {left.shape} and {right.shape}")
        if min(left.min(), right.min()) < 0 or left.max() >= n or right.max() >= m:
            raise DataError(f"user indices must lie in 0..{n - 1} and item indices in 0..{m - 1}")
        if size >= 2**30:
            raise DataError(f"{size} interactions; a graph on one machine holds fewer than 2^30")
        # Sorting one key per edge is the only E log E step; everything after it is counting.
        keys = left.astype(np.int64) * m + right
        strengths = None
        if weights is None:
            keys.sort()
        else:
            order = np.argsort(keys, kind="stable")
            keys, strengths = keys[order], np.asarray(weights, np.float64)[order]
        by_user, far = (keys // m).astype(np.int32), (keys % m).astype(np.int32) + np.int32(n)
        item_order = np.argsort(far, kind="stable").astype(np.int32)
        near = np.concatenate([by_user, far[item_order]])
        far = np.concatenate([far, by_user[item_order]])
        counts = np.bincount(near, minlength=n + m)
        both_ways = None if strengths is None else np.concatenate([strengths, strengths[item_order]])
        degrees = counts if both_ways is None else np.bincount(near, both_ways, minlength=n + m)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        arrays = (starts, far, near, item_order, degrees.astype(np.float64))
        ptr, neighbours, owners, by_item, degree = (torch.from_numpy(array).to(device) for array in arrays)
        pattern = csr_pattern(ptr[: n + 1], neighbours[:size], (n, n + m), dtype)
        stored = None if both_ways is None else torch.from_numpy(both_ways).to(device, dtype)
        return cls(n, m, ptr, neighbours, owners, by_item, degree, pattern, stored)

    def interaction_matrix(self, count_duplicates: bool = False) -> csr_array:
        """Return the (n, m) matrix X of the edges, as the function `interaction_matrix` below makes it."""
        users, items = self.edge_users.cpu().numpy(), self.edge_items.cpu().numpy() - self.num_users
        weights = None if self.edge_weights is None else self.edge_weights.cpu().numpy()
        return interaction_matrix(users, items, (self.num_users, self.num_items), count_duplicates, weights)

    def distinct(self) -> "BipartiteGraph":
        """Return the graph with one edge in place of parallel ones, weighted as in `interaction_matrix`."""
        matrix = self.interaction_matrix().tocoo()
        size, weights = (self.num_users, self.num_items), None if self.weights is None else matrix.data
        options: dict[str, Any] = {"device": self.device, "dtype": self.pattern.dtype}
        return BipartiteGraph.from_pairs(matrix.row, matrix.col, *size, weights=weights, **options)

    def unweighted(self) -> "BipartiteGraph":
        """Return the graph whose edges count 1 each, for methods that cannot use weights."""
        return self if self.weights is None else replace(self, degree=self.num_entries, weights=None)

    @property
    def num_edges(self) -> int:
        """E, with parallel edges."""
        return self.neighbours.shape[0] // 2

    @property
    def num_entries(self) -> Tensor:
        """(n+m,) float64 number of edges of each node, whatever they weigh."""
        return self.ptr.diff().double()

    @property
    def divisor(self) -> Tensor:
        """(n+m,) float64 degree, and 1 for a node without an edge: what a mean divides by."""
        return torch.where(self.degree > 0, self.degree, 1.0)

    @property
    def edge_weights(self) -> Tensor | None:
        """(E,) weight of each edge, or None where each counts 1."""
        return None if self.weights is None else self.weights[: self.num_edges]

    @cached_property
    def loss_weights(self) -> Tensor | None:
        """(E,) what the loss of each edge counts: its weight, scaled to a mean of 1; None without weights."""
        if self.edge_weights is None:
            return None
        whole = self.whole
        mean = self.edge_weights.mean() if whole is None else whole.total_weight / whole.num_edges
        return self.edge_weights / mean

    @property
    def all_users(self) -> int:
        """The number of users of all ranks."""
        return self.num_users if self.whole is None else self.whole.num_users

    @property
    def all_edges(self) -> int:
        """The number of edges of all ranks."""
        return self.num_edges if self.whole is None else self.whole.num_edges

    @cached_property
    def edges_per_node(self) -> float:
        """Edges per user or item that has any, over all ranks; parallel edges count."""
        n = self.num_users
        users = self.ranks.total(float((self.degree[:n] > 0).sum()))[0]
        return self.all_edges / (users + float((self.degree[n:] > 0).sum()))

    @property
    def node_ranges(self) -> list[tuple[int, int]]:
        """Where the rows of the users and of the items here lie in a table of all users and items."""
        first = 0 if self.whole is None else self.whole.first_user
        return [(first, first + self.num_users), (self.all_users, self.all_users + self.num_items)]

    @property
    def all_weight(self) -> Tensor | float:
        """The sum of the weights of the edges of all ranks."""
        return self.degree[: self.num_users].sum() if self.whole is None else self.whole.total_weight

    @property
    def own_items(self) -> slice:
        """The nodes of the items that this rank owns: all of them, alone."""
        own = self.ranks.slice_of(self.num_items)
        return slice(self.num_users + own.start, self.num_users + own.stop)

    def own_edges(self, edges: Tensor) -> Tensor:
        """Return those of the edges, by their numbers in the whole, that are this rank's, by their numbers here."""
        if self.whole is None:
            return edges
        here = edges - self.whole.first_edge
        return here[(here >= 0) & (here < self.num_edges)]

    def once(self, per_node: Tensor) -> Tensor:
        """Return values of nodes with 0 at the items that another rank owns: summed over ranks each counts once."""
        if self.ranks.alone:
            return per_node
        own, result = self.own_items, per_node.clone()
        result[self.num_users : own.start] = 0
        result[own.stop :] = 0
        return result

    def whole_gradient(self, gradient: Tensor) -> Tensor:
        """Return a gradient (n+m, d) whose part at the items is summed over the ranks."""
        if self.ranks.alone:
            return gradient
        result = gradient.clone(memory_format=torch.contiguous_format)
        self.ranks.sum_(result[self.num_users :])
        return result

    def own_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of this rank's users and of the items it owns, out of those of all nodes here."""
        return rows if self.ranks.alone else torch.cat([rows[: self.num_users], rows[self.own_items]])

    def all_rows(self, own: Tensor) -> Tensor:
        """Return the rows of all nodes here from `own_rows` of every rank."""
        if self.ranks.alone:
            return own
        rows = own.new_empty(self.num_nodes, *own.shape[1:])
        rows[: self.num_users], rows[self.own_items] = own[: self.num_users], own[self.num_users :]
        self.ranks.gather_(rows[self.num_users :])
        return rows

    @property
    def num_nodes(self) -> int:
        return self.num_users + self.num_items

    @property
    def device(self) -> torch.device:
        return self.neighbours.device

    @property
    def edge_users(self) -> Tensor:
        """(E,) node of each edge's user: the user index."""
        return self.owners[: self.num_edges]

    @property
    def edge_items(self) -> Tensor:
        """(E,) node of each edge's item: n + the item index."""
        return self.neighbours[: self.num_edges]


class Whole(NamedTuple):
    """Where the block of a rank lies in the whole graph."""

    first_user: int  # number of the block's first user
    num_users: int  # of all ranks
    first_edge: int  # number of the block's first edge
    num_edges: int  # of all ranks
    total_weight: float  # of the edges of all ranks, or their number


def csr_pattern(ptr: Tensor, columns: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return a sparse CSR tensor of zeros at the given positions, made without torch's beta notice."""
    values = torch.zeros(columns.shape[0], dtype=dtype, device=columns.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(ptr, columns, values, size=shape, check_invariants=False)


def interaction_matrix(
    users: NDArray[Any],
    items: NDArray[Any],
    shape: tuple[int, int],
    count_duplicates: bool = False,
    weights: NDArray[Any] | None = None,
) -> csr_array:
    """Return the float32 matrix X of the given shape: 1 where a pair occurs, or how often it does.

    With a weight per occurrence, that is the largest weight of the pair, all scaled to a mean square of 1 so that
    X^T X stays as large as that of ones; or the sum of the pair's weights.
    """
    if weights is not None:
        first, groups = distinct(users, items)
        values = np.zeros(len(first))  # float64: the order of additions does not show
        (np.add if count_duplicates else np.maximum).at(values, groups, weights)
        matrix = csr_array((values, (users[first], items[first])), shape=shape)
        matrix.sort_indices()
        return (matrix if count_duplicates else matrix / np.sqrt(np.mean(matrix.data**2))).astype(np.float32)
    counts = csr_array((np.ones(len(users), np.float32), (users, items)), shape=shape)
    counts.sum_duplicates()
    if not count_duplicates:
        counts.data[:] = 1
    return counts


def positive_sums(matrix: csr_array, axis: int) -> NDArray[np.float32]:
    """Return the sums of X over an axis, and 1 where there is nothing to sum: what a mean divides by."""
    sums = matrix.sum(axis=axis)
    return np.where(sums > 0, sums, np.float32(1))
