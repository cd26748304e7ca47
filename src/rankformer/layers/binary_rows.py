"""Rows of the 0/1 matrix of training pairs, of users or of items, for methods that read whole rows.

A row is the set of an entity's distinct partners: repeated pairs count once. `weighted_rows` is the first layer of an
encoder over such rows, (X_b * w_a) T for each aspect a, as a sparse product in both directions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import bag_sum, row_dot
from rankformer.layers.aspects import weighted_bags


@dataclass(frozen=True, eq=False)
class BinaryRows:
    """A batch of rows.

    Attributes:
        ptr: (b + 1,) where each row's entries start.
        rows: (nnz,) row of each entry, ascending.
        columns: (nnz,) its column.
        order: (nnz,) the entries by column.
    """

    ptr: Tensor
    rows: Tensor
    columns: Tensor
    order: Tensor

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.ptr) - 1

    def where(self, chosen: Tensor) -> "BinaryRows":
        """Return the same rows with the chosen ones of their entries alone, (nnz,) of booleans."""
        places = torch.cat([chosen.new_zeros(1, dtype=torch.long), chosen.cumsum(0)])  # of entries that stay
        order = self.order[chosen[self.order]]
        return BinaryRows(places[self.ptr], self.rows[chosen], self.columns[chosen], places[order])


@dataclass(frozen=True, eq=False)
class BinaryMatrix:
    """The rows of all users and of all items.

    Attributes:
        ptr: (n + m + 1,) where each node's entries start.
        columns: the distinct partners of each node, as indices of their own side.
    """

    ptr: Tensor
    columns: Tensor

    @classmethod
    def of(cls, graph: BipartiteGraph) -> "BinaryMatrix":
        """Return the rows of a graph's nodes."""
        owners, neighbours = graph.owners, graph.neighbours
        fresh = torch.ones_like(owners, dtype=torch.bool)  # repeats stand side by side
        fresh[1:] = (owners[1:] != owners[:-1]) | (neighbours[1:] != neighbours[:-1])
        counts = torch.bincount(owners[fresh], minlength=graph.num_nodes)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        columns = neighbours[fresh].long()
        return cls(ptr, torch.where(columns >= graph.num_users, columns - graph.num_users, columns))

    def rows(self, nodes: Tensor) -> BinaryRows:
        """Return the rows of some nodes, all users or all items, in their order."""
        starts = self.ptr[nodes]
        counts = self.ptr[nodes + 1] - starts
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
        columns = self.columns[torch.arange(len(rows), device=nodes.device) + (starts - ptr[:-1])[rows]]
        return BinaryRows(ptr, rows, columns, torch.argsort(columns, stable=True))


class _WeightedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, batch: BinaryRows, table: Tensor, weights: Tensor) -> Tensor:
        ctx.batch = batch
        ctx.save_for_backward(table, weights)
        return weighted_bags(batch.columns, batch.ptr, table, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor | None]:
        batch: BinaryRows = ctx.batch
        table, weights = ctx.saved_tensors
        grad = grads[0].contiguous()  # (A, b, h)
        aspects, num_rows, width = grad.shape
        # One bag for each column that occurs, with an entry for every (row, aspect): sum of w[a, i] grad[a, r].
        distinct, counts = torch.unique_consecutive(batch.columns[batch.order], return_counts=True)
        places = batch.rows[batch.order, None] + num_rows * torch.arange(aspects, device=grad.device)
        by_column = weights[:, batch.columns[batch.order]].T.reshape(-1)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]) * aspects
        sums = bag_sum(places.reshape(-1), grad.view(-1, width), ptr, by_column)
        grad_table = torch.zeros_like(table).index_copy_(0, distinct, sums)
        grad_weights = None
        if ctx.needs_input_grad[2]:
            grad_weights = torch.zeros_like(weights)
            for aspect, part in enumerate(grad):
                products = row_dot(part[batch.rows], table[batch.columns])
                grad_weights[aspect].index_add_(0, batch.columns, products)
        return None, grad_table, grad_weights


def weighted_rows(batch: BinaryRows, table: Tensor, weights: Tensor) -> Tensor:
    """Return (X_b * w_a) T for each aspect, (A, b, h); differentiable in table and weights.

    Args:
        batch: X_b, of m columns.
        table: (m, h) T.
        weights: (A, m) w.
    """
    return _WeightedRows.apply(batch, table, weights)  # type: ignore[no-any-return, no-untyped-call]
