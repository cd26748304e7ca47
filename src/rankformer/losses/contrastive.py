"""Contrastive loss between two views of the batch's nodes: InfoNCE, the batch's distinct nodes, the sum of the terms.

    NCE(X, Y) = -1/|X| sum_a ln [ exp(x_a . y_a / tau_cl) / sum_b exp(x_a . y_b / tau_cl) ],   x, y of length one
    L = L_rank + L2 + lambda_cl ( NCE(F[U], C[U]) + NCE(F[I], C[I]) )

F are the final embeddings, C those of the other view, U the distinct users of the batch and I its distinct positive
items; negatives and weights take no part in NCE. L_rank is a ranking loss on F. L2 is that of the learned embeddings
(`losses.l2`), or SELFRec's on the final ones, l2 (|F[u]| + |F[i]|) / B, Frobenius norms over the batch's interactions.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding

from rankformer.graph.batch import Batch, Triples
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.graph.unit_rows import unit_rows
from rankformer.losses import RANKING_LOSSES
from rankformer.losses.l2 import batch_l2
from rankformer.losses.log_sum_exp import weighted_log_sum_exp

_SCORES_AT_ONCE = 2**19  # of a batch's few thousand candidates, which then stay in the cache


class Views(NamedTuple):
    """Embeddings of the same nodes: final (F), of the contrastive view (C), and as learned, (S, d) each."""

    final: Tensor
    contrastive: Tensor
    table: Tensor


@dataclass(frozen=True)
class BatchNodes:
    """The distinct nodes of a batch, and its triples as positions among them.

    Attributes:
        nodes: (S,) int64 distinct nodes: users, positives, then what occurs as a negative only; all for a full batch.
        triples: positions of users, positives and negatives among the nodes, (B,) each.
        users: positions of the distinct users.
        items: positions of the distinct positives.
        ranks: who shares the batch. A rank has its own users and triples, and the items of all.
    """

    nodes: Tensor
    triples: Triples
    users: slice | Tensor
    items: slice | Tensor
    ranks: Ranks = ALONE

    @classmethod
    def of(cls, graph: BipartiteGraph, batch: Batch) -> "BatchNodes":
        """Return the nodes of one batch, in passes over the nodes and without a sort."""
        n, device, triples = graph.num_users, graph.device, batch.triples(graph)
        if batch.edges is None:
            touched = graph.degree > 0
            users, items = touched[:n].nonzero()[:, 0], touched[n:].nonzero()[:, 0] + n
            return cls(torch.arange(graph.num_nodes, device=device), triples, users, items, graph.ranks)
        members = [nodes.long() for nodes in (triples.users, triples.positives, triples.negatives)]
        role = torch.zeros(graph.num_nodes, dtype=torch.int8, device=device)
        everyones = [members[0], *(_joined(nodes - n, graph.ranks) + n for nodes in members[1:])]
        for number, nodes in zip((1, 2, 3), reversed(everyones), strict=True):
            role[nodes] = number  # a positive that is also a negative counts as a positive
        groups = [(role == number).nonzero()[:, 0] for number in (3, 2, 1)]
        distinct = torch.cat(groups)
        position = torch.empty(graph.num_nodes, dtype=torch.int64, device=device)
        position[distinct] = torch.arange(len(distinct), device=device)
        first, second = len(groups[0]), len(groups[0]) + len(groups[1])
        counted: dict[str, Any] = {"weights": triples.weights, "total": triples.total}
        placed = Triples(position[members[0]], position[members[1]], position[members[2]], **counted)
        return cls(distinct, placed, slice(0, first), slice(first, second), graph.ranks)


def contrastive_loss(batch: BatchNodes, views: Views, settings: Any) -> Tensor:
    """Return the loss of a batch: ranking loss, L2 regularization and weighted contrastive loss.

    Of the settings of a contrastive model it reads `loss` and what that needs, `l2`, `l2_on`, `cl_weight` and
    `cl_temperature`.
    """
    loss = RANKING_LOSSES[settings.loss].of(views.final, batch.triples, settings)
    if settings.l2_on == "initial":
        loss = loss + batch_l2(views.table, batch.triples, settings.l2)
    else:
        loss = loss + settings.l2 * _final_norms(batch.triples, views.final, batch.ranks)
    if settings.cl_weight == 0:
        return loss
    for anchors, shared in ((batch.users, False), (batch.items, True)):
        x, y = views.final[anchors], views.contrastive[anchors]
        if batch.ranks.alone:
            nce = info_nce(x, y, settings.cl_temperature)
        elif shared:  # each rank looks at some of the items, which all have
            own = batch.ranks.slice_of(len(x))
            nce = info_nce(x[own], y, settings.cl_temperature, own.start)
        else:  # and at its own users, among those of all
            everyones: Tensor = _Gathered.apply(y, batch.ranks)  # type: ignore[no-untyped-call]
            nce = info_nce(x, everyones, settings.cl_temperature, batch.ranks.before(len(x))[0])
        loss = loss + settings.cl_weight * nce
    return loss


def _joined(values: Tensor, ranks: Ranks) -> Tensor:
    """Return the values of all ranks, one after another."""
    return values if ranks.alone else torch.from_numpy(ranks.joined(values.detach().cpu().numpy())).to(values.device)


class _Gathered(torch.autograd.Function):
    """The rows of all ranks, one after another; the gradient of a rank's rows is the sum of what all ranks have."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:
        first, _ = ranks.before(len(rows))
        ctx.fixed = ranks, slice(first, first + len(rows))
        return _joined(rows, ranks)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ranks, own), grad = ctx.fixed, grads[0].clone()
        ranks.sum_(grad)
        return grad[own], None


def _final_norms(triples: Triples, final: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return (|F[u]| + |F[i]|) / B, Frobenius norms over the users and the positives of all interactions."""
    lengths = torch.linalg.vector_norm(final, dim=1)
    sides = (triples.users, triples.positives)
    if not ranks.alone:
        squares = torch.stack([lengths.index_select(0, rows).square().sum() for rows in sides])
        total = squares.detach().clone()
        ranks.sum_(total)
        # The parts of the ranks add up to the norms, and so do their gradients: those of squares over twice the norm.
        return ((squares + squares.detach()) / (2 * total.sqrt())).sum() / triples.size
    norms = [torch.linalg.vector_norm(lengths.index_select(0, rows)) for rows in sides]
    return torch.stack(norms).sum() / len(triples)


def info_nce(anchors: Tensor, candidates: Tensor, temperature: float, first: int = 0) -> Tensor:
    """Return NCE(X, Y), the mean cross entropy of picking each anchor's candidate by cosine; both are (N, d).

    One-directional: anchors choose among candidates, of which row a is the positive of anchor a and the others are its
    negatives. Both get gradients; the length of a row does not matter, and a row of zeros has similarity 0 with all and
    gets no gradient. No (N, N) matrix is ever whole. Given only some of the anchors, from the one of row `first` on, it
    is their part of the mean.
    """
    if not len(anchors):  # of this rank; the gradient is 0, and passes where that of other ranks does
        return candidates.sum() * 0
    x, y = unit_rows(anchors) / temperature, unit_rows(candidates)
    denominators = weighted_log_sum_exp(x, y, x.new_full((len(x),), 1 / len(y)), block=_SCORES_AT_ONCE)
    return denominators - torch.dot(x.flatten(), y[first : first + len(x)].flatten()) / len(y)


def take_rows(rows: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows of distinct nodes, (S, d)."""
    return embedding(nodes, rows)
