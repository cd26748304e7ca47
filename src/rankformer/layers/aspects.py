"""The arithmetic on 0/1 rows and aspect latents that DualVAE uses in training and in scoring.

A row of the matrix X of training interactions is the set of a user's distinct items, or of an item's distinct users.
With z_a (b, d) latents of some entities and B_a (m, d) those of the opposite side, f the decoders, for each aspect a:

    hidden      sum over the columns i of a row of w[a, i] t_i, perhaps over the root of their number     (A, b, h)
    logits      G_a = z_a B_a^T + tanh( f(z_a) f'(B_a)^T )                                  (A, b, m)

But for `divided_by_root` and `weighted_rows`, nothing here is differentiated: training writes its own backward.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import elu, embedding_bag

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import bag_sum, row_dot

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "elu": elu,
}


def weighted_bags(columns: Tensor, ptr: Tensor, table: Tensor, weights: Tensor) -> Tensor:
    """Return sum over k in ptr[r]:ptr[r+1] of weights[a, columns_k] table[columns_k], (A, b, h).

    The columns (nnz,) are sorted by row, each row from its ptr (b + 1,) on; table is (m, h), weights (A, m).
    """
    return torch.stack(
        [
            embedding_bag(columns, table, ptr, mode="sum", per_sample_weights=each[columns], include_last_offset=True)
            for each in weights
        ]
    )


def divided_by_root(sums: Tensor, ptr: Tensor) -> Tensor:
    """Return sums over rows that start at ptr (b + 1,), (..., b, h), divided by the root of each row's size if any."""
    return sums * ptr.diff().clamp(min=1).to(sums.dtype).rsqrt()[:, None]


def tanh_products(decoded: Tensor, other_decoded: Tensor) -> Tensor:
    """Return tanh of the inner products of decoded rows, (A, b, m)."""
    return torch.bmm(decoded, other_decoded.mT).tanh_()


def mix_aspects(values: Tensor, attention: Tensor) -> Tensor:
    """Return sum over a of attention[a, i] values[a, r, i], (b, m)."""
    mixed = values[0] * attention[0]
    for value, weight in zip(values[1:], attention[1:], strict=True):
        mixed.addcmul_(value, weight)
    return mixed


class BinaryRows(NamedTuple):
    """A batch of rows of X."""

    ptr: Tensor  # (b + 1,) where each row's entries start
    rows: Tensor  # (nnz,) row of each entry, ascending
    columns: Tensor  # (nnz,) its column
    order: Tensor  # (nnz,) the entries by column

    @classmethod
    def of(cls, graph: BipartiteGraph, nodes: Tensor) -> "BinaryRows":
        """Return the rows of some nodes of a graph without parallel edges, all users or all items, in their order."""
        starts = graph.ptr[nodes].long()
        counts = graph.ptr[nodes + 1] - starts
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
        entries = torch.arange(len(rows), device=nodes.device) + (starts - ptr[:-1])[rows]
        columns = graph.neighbours[entries].long()
        columns = torch.where(columns >= graph.num_users, columns - graph.num_users, columns)
        return cls(ptr, rows, columns, torch.argsort(columns, stable=True))

    @property
    def num_rows(self) -> int:
        return len(self.ptr) - 1

    def where(self, chosen: Tensor) -> "BinaryRows":
        """Return the same rows with the chosen ones of their entries alone, (nnz,) of booleans."""
        positions = torch.cat([chosen.new_zeros(1, dtype=torch.long), chosen.cumsum(0)])  # of entries that stay
        order = self.order[chosen[self.order]]
        return BinaryRows(positions[self.ptr], self.rows[chosen], self.columns[chosen], positions[order])


def weighted_rows(batch: BinaryRows, table: Tensor, weights: Tensor) -> Tensor:
    """Return (X_b * w_a) T for each aspect, (A, b, h), from T (m, h) and w (A, m): the first layer of an encoder."""
    return _WeightedRows.apply(batch, table, weights)  # type: ignore[no-any-return, no-untyped-call]


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
        aspects, num_rows, dim = grad.shape
        # One bag for each column that occurs, with an entry for every (row, aspect): sum of w[a, i] grad[a, r].
        distinct, counts = torch.unique_consecutive(batch.columns[batch.order], return_counts=True)
        positions = batch.rows[batch.order, None] + num_rows * torch.arange(aspects, device=grad.device)
        by_column = weights[:, batch.columns[batch.order]].T.reshape(-1)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]) * aspects
        sums = bag_sum(positions.reshape(-1), grad.view(-1, dim), ptr, by_column)
        grad_table = torch.zeros_like(table).index_copy_(0, distinct, sums)
        grad_weights = None
        if ctx.needs_input_grad[2]:
            grad_weights = torch.zeros_like(weights)
            for aspect, part in enumerate(grad):
                products = row_dot(part[batch.rows], table[batch.columns])
                grad_weights[aspect].index_add_(0, batch.columns, products)
        return None, grad_table, grad_weights
