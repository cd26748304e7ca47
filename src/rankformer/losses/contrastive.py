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
    """

    nodes: Tensor
    triples: Triples
    users: slice | Tensor
    items: slice | Tensor

    @classmethod
    def of(cls, graph: BipartiteGraph, batch: Batch) -> "BatchNodes":
        """Return the nodes of one batch, in passes over the nodes and without a sort."""
        n, device, triples = graph.num_users, graph.device, batch.triples(graph)
        if batch.edges is None:
            touched = graph.degree > 0
            users, items = touched[:n].nonzero()[:, 0], touched[n:].nonzero()[:, 0] + n
            return cls(torch.arange(graph.num_nodes, device=device), triples, users, items)
        members = [nodes.long() for nodes in (triples.users, triples.positives, triples.negatives)]
        role = torch.zeros(graph.num_nodes, dtype=torch.int8, device=device)
        for number, nodes in zip((1, 2, 3), reversed(members), strict=True):
            role[nodes] = number  # a positive that is also a negative counts as a positive
        groups = [(role == number).nonzero()[:, 0] for number in (3, 2, 1)]
        distinct = torch.cat(groups)
        position = torch.empty(graph.num_nodes, dtype=torch.int64, device=device)
        position[distinct] = torch.arange(len(distinct), device=device)
        first, second = len(groups[0]), len(groups[0]) + len(groups[1])
        placed = Triples(position[members[0]], position[members[1]], position[members[2]], weights=triples.weights)
        return cls(distinct, placed, slice(0, first), slice(first, second))


def contrastive_loss(batch: BatchNodes, views: Views, settings: Any) -> Tensor:
    """Return the loss of a batch: ranking loss, L2 regularization and weighted contrastive loss.

    Of the settings of a contrastive model it reads `loss` and what that needs, `l2`, `l2_on`, `cl_weight` and
    `cl_temperature`.
    """
    loss = RANKING_LOSSES[settings.loss].of(views.final, batch.triples, settings)
    if settings.l2_on == "initial":
        loss = loss + batch_l2(views.table, batch.triples, settings.l2)
    else:
        loss = loss + settings.l2 * _final_norms(batch.triples, views.final)
    if settings.cl_weight == 0:
        return loss
    for anchors in (batch.users, batch.items):
        nce = info_nce(views.final[anchors], views.contrastive[anchors], settings.cl_temperature)
        loss = loss + settings.cl_weight * nce
    return loss


def _final_norms(triples: Triples, final: Tensor) -> Tensor:
    """Return (|F[u]| + |F[i]|) / B, Frobenius norms over the users and the positives of all interactions."""
    lengths = torch.linalg.vector_norm(final, dim=1)
    sides = (triples.users, triples.positives)
    norms = [torch.linalg.vector_norm(lengths.index_select(0, rows)) for rows in sides]
    return torch.stack(norms).sum() / len(triples)


def info_nce(anchors: Tensor, candidates: Tensor, temperature: float) -> Tensor:
    """Return NCE(X, Y), the mean cross entropy of picking each anchor's candidate by cosine; both are (N, d).

    One-directional: anchors choose among candidates, of which row a is the positive of anchor a and the others are its
    negatives. Both get gradients; the length of a row does not matter, and a row of zeros has similarity 0 with all and
    gets no gradient. No (N, N) matrix is ever whole.
    """
    x, y = unit_rows(anchors) / temperature, unit_rows(candidates)
    denominators = weighted_log_sum_exp(x, y, x.new_full((len(x),), 1 / len(x)), block=_SCORES_AT_ONCE)
    return denominators - torch.dot(x.flatten(), y.flatten()) / len(x)


def take_rows(rows: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows of distinct nodes, (S, d)."""
    return embedding(nodes, rows)
