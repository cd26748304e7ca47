"""The training interactions as a fixed sparse pattern, sorted once by user and once by item."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError


@dataclass(frozen=True, eq=False)
class BipartiteGraph:
    """E edges between n users and m items, in both orders; duplicate interactions are parallel edges.

    Nodes are numbered users first: user u is node u, item i is node n + i. An *edge value* is a number per edge, (E,)
    in user order (sorted by user, then item). A *two-way value* is (2E,): the edge values in user order, then the same
    in item order, so that entry ptr[v]:ptr[v+1] belongs to node v, user or item. Degrees count parallel edges.

    Attributes:
        num_users: n.
        num_items: m.
        ptr: (n+m+1,) where each node's entries start in a two-way value.
        neighbours: (2E,) the node at the far end of each entry.
        owners: (2E,) the node that each entry belongs to.
        edge_of: (2E,) the edge, in user order, behind each entry.
        degree: (n+m,) float64 number of edges of each node, d_u then d_i.
        pattern: the (n, n+m) sparse CSR tensor of zeros on the edges, which `edge_dot` fills.
    """

    num_users: int
    num_items: int
    ptr: Tensor
    neighbours: Tensor
    owners: Tensor
    edge_of: Tensor
    degree: Tensor
    pattern: Tensor

    @classmethod
    def from_interactions(
        cls, data: Interactions, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> "BipartiteGraph":
        """Return the graph of all interactions of `data`; the arguments are those of `from_pairs`."""
        if not len(data):
            raise DataError(f"{data.name} has no interaction to build a graph from; give at least one")
        return cls.from_pairs(data.users, data.items, data.num_users, data.num_items, device=device, dtype=dtype)

    @classmethod
    def from_pairs(
        cls,
        users: ArrayLike,
        items: ArrayLike,
        num_users: int,
        num_items: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "BipartiteGraph":
        """Return the graph with an edge for each pair of user and item indices (E,), duplicates as parallel edges.

        The pairs may be in any order. `edge_dot` will produce values of the given type on this graph.
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
        keys = np.sort(left.astype(np.int64) * m + right)
        by_user, far = (keys // m).astype(np.int32), (keys % m).astype(np.int32) + np.int32(n)
        item_order = np.argsort(far, kind="stable").astype(np.int32)
        near = np.concatenate([by_user, far[item_order]])
        far = np.concatenate([far, by_user[item_order]])
        edges = np.concatenate([np.arange(size, dtype=np.int32), item_order])
        counts = np.bincount(near, minlength=n + m)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        arrays = (starts, far, near, edges, counts.astype(np.float64))
        ptr, neighbours, owners, edge_of, degree = (torch.from_numpy(array).to(device) for array in arrays)
        pattern = csr_pattern(ptr[: n + 1], neighbours[:size], (n, n + m), dtype)
        return cls(n, m, ptr, neighbours, owners, edge_of, degree, pattern)

    def interaction_matrix(self, count_duplicates: bool = False) -> csr_array:
        """Return the (n, m) matrix X: 1 where there is an edge, or the number of parallel edges."""
        users, items = self.edge_users.cpu().numpy(), self.edge_items.cpu().numpy() - self.num_users
        return interaction_matrix(users, items, (self.num_users, self.num_items), count_duplicates)

    def distinct(self) -> "BipartiteGraph":
        """Return the graph with one edge in place of parallel ones."""
        matrix = self.interaction_matrix().tocoo()
        size, dtype = (self.num_users, self.num_items), self.pattern.dtype
        return BipartiteGraph.from_pairs(matrix.row, matrix.col, *size, device=self.device, dtype=dtype)

    @property
    def num_edges(self) -> int:
        """E, with parallel edges."""
        return self.neighbours.shape[0] // 2

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


def csr_pattern(ptr: Tensor, columns: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return a sparse CSR tensor of zeros at the given positions, made without torch's beta notice."""
    values = torch.zeros(columns.shape[0], dtype=dtype, device=columns.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(ptr, columns, values, size=shape, check_invariants=False)


def interaction_matrix(
    users: NDArray[Any], items: NDArray[Any], shape: tuple[int, int], count_duplicates: bool = False
) -> csr_array:
    """Return the float32 matrix X of the given shape: 1 where a pair occurs, or how often it does."""
    counts = csr_array((np.ones(len(users), np.float32), (users, items)), shape=shape)
    counts.sum_duplicates()
    if not count_duplicates:
        counts.data[:] = 1
    return counts
