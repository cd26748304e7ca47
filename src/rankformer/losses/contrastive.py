"""What methods share that contrast two views of the batch's nodes: InfoNCE, the batch's distinct nodes, the loss.

    NCE(X, Y) = -1/|X| sum_a ln [ exp(x_a . y_a / tau_cl) / sum_b exp(x_a . y_b / tau_cl) ],   x, y of length one
    L = L_rank + penalty + lambda_cl ( NCE(F[U], C[U]) + NCE(F[I], C[I]) )

F are the final rows, C those of the other view, U the distinct users of the batch and I its distinct positive items;
negatives take no part in the contrast. L_rank is BPR on F, as everywhere here. The penalty is that of BPR on the
learned rows, or SELFRec's on the final ones, l2 (|F[u]| + |F[i]|) / B, Frobenius norms over the batch's B pairs.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import row_dot
from rankformer.graph.spectral import spectral_rows
from rankformer.losses.bpr import bpr_batch, bpr_full
from rankformer.losses.log_sum_exp import weighted_log_sum_exp
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import Batch

_SCORES_AT_ONCE = 2**19  # of a batch's few thousand candidates, which then stay in the cache


class ContrastiveSettings(TrainingSettings):
    """How a contrastive method is trained: mini-batches, since every row of a batch is another's negative."""

    epochs: int = Field(default=500, ge=1)
    """Most passes over the training pairs."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Adam's step size."""
    batch_size: int | None = Field(default=2048, ge=1)
    """Pairs per step; none means all pairs in one step, with a contrast quadratic in the users and items."""
    validate_every: int = Field(default=1, ge=1)
    """Epochs between validations, and between checkpoints."""
    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the vectors."""
    cl_weight: float = Field(default=0.05, ge=0)
    """Weight lambda_cl of the contrast in the loss."""
    cl_noise: float = Field(default=0.1, ge=0)
    """Length eps_cl of the noise that training adds to each row after each propagation."""
    cl_temperature: float = Field(default=0.15, gt=0)
    """Temperature tau_cl of the contrast."""
    start: Literal["normal", "xavier", "spectral"] = "normal"
    """What z0 starts from: Normal(0, 0.1^2), Xavier's uniform range, or singular vectors of the training matrix."""
    penalty: Literal["table", "final"] = "table"
    """What l2 weighs: squared lengths of the learned rows of u, i, j, or SELFRec's norms of the final rows of u, i."""


class Views(NamedTuple):
    """Rows of the same nodes: final (F), contrast (C), and as learned, (S, d) each."""

    final: Tensor
    contrast: Tensor
    table: Tensor


@dataclass(frozen=True)
class BatchNodes:
    """The distinct nodes of a batch, and its triples as places among them.

    Attributes:
        nodes: (S,) int64 distinct nodes: users, positives, then what occurs as a negative only; all for a full batch.
        triples: places of users, positives and negatives, (B,) each.
        users: places of the distinct users.
        items: places of the distinct positives.
        graph: the graph of a full batch, whose places are the nodes themselves; None for a mini-batch.
    """

    nodes: Tensor
    triples: tuple[Tensor, Tensor, Tensor]
    users: slice | Tensor
    items: slice | Tensor
    graph: BipartiteGraph | None = None

    @classmethod
    def of(cls, graph: BipartiteGraph, batch: Batch) -> "BatchNodes":
        """Return the nodes of one batch, in passes over the nodes and without a sort."""
        n, device = graph.num_users, graph.device
        if batch.edges is None:
            touched = graph.degree > 0
            users, items = touched[:n].nonzero()[:, 0], touched[n:].nonzero()[:, 0] + n
            triples = graph.edge_users, graph.edge_items, batch.negatives
            return cls(torch.arange(graph.num_nodes, device=device), triples, users, items, graph)
        edges = batch.edges
        triples = graph.edge_users[edges].long(), graph.edge_items[edges].long(), batch.negatives.long()
        role = torch.zeros(graph.num_nodes, dtype=torch.int8, device=device)
        for number, members in zip((1, 2, 3), reversed(triples), strict=True):
            role[members] = number  # a positive that is also a negative counts as a positive
        groups = [(role == number).nonzero()[:, 0] for number in (3, 2, 1)]
        nodes = torch.cat(groups)
        place = torch.empty(graph.num_nodes, dtype=torch.int64, device=device)
        place[nodes] = torch.arange(len(nodes), device=device)
        users, positives, negatives = (place[members] for members in triples)
        first, second = len(groups[0]), len(groups[0]) + len(groups[1])
        return cls(nodes, (users, positives, negatives), slice(0, first), slice(first, second))


def contrastive_loss(batch: BatchNodes, views: Views, l2: float, settings: ContrastiveSettings) -> Tensor:
    """Return the loss of a batch: ranking, penalty and weighted contrast.

    Args:
        batch: the distinct nodes.
        views: their rows.
        l2: weight of the penalty.
        settings: weight and temperature of the contrast, and which penalty.
    """
    on_table = l2 if settings.penalty == "table" else 0.0
    if batch.graph is not None:
        loss = bpr_full(batch.graph, views.final, views.table, batch.triples[2], on_table)
    else:
        loss = bpr_batch(views.final, views.table, batch.triples, on_table)
    if settings.penalty == "final":
        loss = loss + l2 * _final_norms(batch, views.final)
    if settings.cl_weight == 0:
        return loss
    for anchors in (batch.users, batch.items):
        contrast = info_nce(views.final[anchors], views.contrast[anchors], settings.cl_temperature)
        loss = loss + settings.cl_weight * contrast
    return loss


def _final_norms(batch: BatchNodes, final: Tensor) -> Tensor:
    """Return (|F[u]| + |F[i]|) / B, Frobenius norms over the users and the positives of all pairs."""
    lengths = torch.linalg.vector_norm(final, dim=1)
    users, positives, _ = batch.triples
    norms = [torch.linalg.vector_norm(lengths.index_select(0, places)) for places in (users, positives)]
    return torch.stack(norms).sum() / len(users)


def info_nce(anchors: Tensor, candidates: Tensor, temperature: float) -> Tensor:
    """Return NCE(X, Y), the mean cross entropy of picking each anchor's own candidate by cosine.

    One-directional: anchors choose among candidates. Both get gradients; the length of a row does not matter, and a
    row of zeros has similarity 0 with all and gets no gradient. No (N, N) matrix is ever whole.

    Args:
        anchors: X, (N, d).
        candidates: Y, (N, d); row a is the positive of anchor a, the others are its negatives.
        temperature: tau_cl.
    """
    x: Tensor = _UnitRows.apply(anchors)  # type: ignore[no-untyped-call]
    y: Tensor = _UnitRows.apply(candidates)  # type: ignore[no-untyped-call]
    x = x / temperature
    denominators = weighted_log_sum_exp(x, y, x.new_full((len(x),), 1 / len(x)), block=_SCORES_AT_ONCE)
    return denominators - torch.dot(x.flatten(), y.flatten()) / len(x)


class _UnitRows(torch.autograd.Function):
    """x = v / |v| row by row, 0 for v = 0; gv = (gx - x (x . gx)) / |v|."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
        unit = rows * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        along = row_dot(unit, grads[0])[:, None]
        return grads[0].addcmul(unit, along, value=-1).mul_(inverse)


def take_rows(rows: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows of distinct nodes, (S, d); the gradient goes back in one copy into zeros."""
    return _TakeRows.apply(rows, nodes)  # type: ignore[no-any-return, no-untyped-call]


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, nodes: Tensor) -> Tensor:
        ctx.fixed = len(rows), nodes
        return rows.index_select(0, nodes)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        size, nodes = ctx.fixed
        return grads[0].new_zeros(size, grads[0].shape[1]).index_copy_(0, nodes, grads[0]), None


def start_table_(table: Tensor, graph: BipartiteGraph, settings: ContrastiveSettings, seed: int) -> None:
    """Set the learned rows to the start that the settings name; "normal" leaves them as the network drew them.

    Xavier's range is U(-a, a) with a = sqrt(6 / (rows + d)), for users and items by themselves.
    """
    dim = settings.embedding_dim
    with torch.no_grad():
        if settings.start == "spectral":
            table.copy_(spectral_rows(graph, dim, seed))
        elif settings.start == "xavier":
            generator = torch.Generator().manual_seed(seed)
            for part in (table[: graph.num_users], table[graph.num_users :]):
                bound = math.sqrt(6 / (len(part) + dim))
                part.copy_(torch.rand(part.shape, generator=generator).mul_(2 * bound).sub_(bound))
