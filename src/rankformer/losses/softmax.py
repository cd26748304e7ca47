"""Sampled softmax over cosines: each user picks its items among negatives that all users share.

Wu et al., "BSL: Understanding and Improving Softmax Loss for Recommendation", ICDE 2024; Yang et al., "Breaking the
Top-K Barrier: Advancing Top-K Ranking Metrics Optimization in Recommender Systems", KDD 2025 (SL@K). With s = x_u . x_i
the cosine, t `loss_temperature`, lambda `loss_push` and J a sample of `loss_negatives` items:

    softmax         L = 1/E sum_(u,i) [ -s_ui / t + lambda log sum_{j in J} exp(s_uj / t) ]     SL; BSL for lambda != 1
    softmax-at-k    the same with each interaction weighted by sigma((s_ui - beta_u) / t_w)

beta_u is the K-th largest score of the user's items, estimated from the interactions and J, where an item of J stands
for (m - d_u) / |J| items; K is `loss_cutoff`, t_w `loss_cutoff_temperature`. Weights are constants for the gradient.

The items of J are spread evenly over the negatives of the batch, which are nearly uniform over all items. With
weights c_e, the first term is c . s = x . (C x) / 2 for the two-way matrix C of the weights, and its gradient C x: one
SpMM for both. The second is `weighted_log_sum_exp`, a block of users at a time; nothing of size n x m or E x d is kept.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from rankformer.graph.batch import Triples
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import edge_dot, row_dot, spmm, two_way
from rankformer.graph.unit_rows import unit_rows
from rankformer.losses.log_sum_exp import weighted_log_sum_exp
from rankformer.losses.settings import LossSettings

_SCORES_AT_ONCE = 2**21


def softmax(z: Tensor, triples: Triples, settings: LossSettings) -> Tensor:
    """Return the softmax loss of the triples, row numbers in `z`: all final embeddings, (n+m, d), or the batch's."""
    return _weighted_softmax(unit_rows(z), triples, None, settings)


def softmax_at_k(z: Tensor, triples: Triples, settings: LossSettings) -> Tensor:
    """Return the softmax loss whose interactions are weighted by their nearness to the user's K best items."""
    x = unit_rows(z)
    with torch.no_grad():
        weights = _nearness_to_best(x, triples, settings)
    return _weighted_softmax(x, triples, weights, settings)


def _weighted_softmax(x: Tensor, triples: Triples, weights: Tensor | None, settings: LossSettings) -> Tensor:
    """Return the loss of unit rows and a weight per interaction, (B,); None means 1."""
    size, t = triples.size, settings.loss_temperature
    c = x.new_ones(len(triples)) if weights is None else weights
    if triples.weights is not None:
        c = c * triples.weights.to(c.dtype)
    per_row = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add_(0, triples.users, c)
    users = per_row.nonzero()[:, 0]
    negatives = embedding(_shared_negatives(triples, settings.loss_negatives), x)
    push = weighted_log_sum_exp(embedding(users, x) / t, negatives, per_row[users] / size, _SCORES_AT_ONCE)
    if triples.graph is not None:
        pull: Tensor = _EdgeSum.apply(triples.graph, x, c)  # type: ignore[no-untyped-call]
    else:
        pull = torch.dot(c, row_dot(*(embedding(rows.long(), x) for rows in (triples.users, triples.positives))))
    return settings.loss_push * push - pull / (t * size)


def _shared_negatives(triples: Triples, count: int) -> Tensor:
    """Return the rows of J, spread evenly over the batch's negatives; of several ranks, over those of all."""
    count, graph = min(count, triples.size), triples.graph
    chosen = torch.arange(count, device=triples.negatives.device) * triples.size // count
    if graph is None or graph.whole is None:
        return triples.negatives[chosen].long()
    here = chosen - graph.whole.first_edge
    mine = (here >= 0) & (here < len(triples))
    items = torch.zeros_like(chosen)
    items[mine] = triples.negatives[here[mine]].long() - graph.num_users
    graph.ranks.sum_(items, exact=True)  # each is known to one rank
    return items + graph.num_users


class _EdgeSum(torch.autograd.Function):
    """sum_e c_e x_u . x_i for constant c (E,) = x . y / 2 with y = C x, which is its gradient."""

    @staticmethod
    def forward(ctx: Any, graph: BipartiteGraph, x: Tensor, c: Tensor) -> Tensor:
        y = spmm(graph, two_way(graph, c), x)
        ctx.save_for_backward(y)
        return row_dot(x, y).sum() / 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (y,) = ctx.saved_tensors
        return None, y * grads[0], None


def _nearness_to_best(x: Tensor, triples: Triples, settings: LossSettings) -> Tensor:
    """Return sigma((s - beta_u) / t_w) for each interaction, (B,).

    A user's candidates are its interactions, each one item, and the best of J, each so many as it stands for; beta_u is
    the score at which they make up K, best first, or that of the last candidate.
    """
    k, graph = settings.loss_cutoff, triples.graph
    users, place = torch.unique(triples.users, return_inverse=True)
    if graph is not None:
        s = edge_dot(graph, x, x)
    else:
        s = row_dot(*(x[rows.long()] for rows in (triples.users, triples.positives)))
    sample = x[_shared_negatives(triples, settings.loss_negatives)]
    own = torch.bincount(place, minlength=len(users))
    others = graph.num_items - own if graph is not None else torch.full_like(own, len(sample))  # a batch knows no more
    each = (others / len(sample)).clamp(min=1)  # items that one of J stands for, at most K of which are needed
    kept = min(len(sample), math.ceil(k / float(each.min())))
    blocks = torch.split(x[users], max(1, _SCORES_AT_ONCE // len(sample)))
    best = torch.cat([(part @ sample.T).topk(kept).values for part in blocks])  # (users, kept)

    owners = torch.cat([place, torch.arange(len(users), device=x.device).repeat_interleave(kept)])
    scores = torch.cat([s, best.flatten()])
    counts = torch.cat([torch.ones_like(s), each.to(s.dtype).repeat_interleave(kept)])
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(owners[order], stable=True)]  # by user, best score first
    total = counts[order].cumsum(0, dtype=torch.float64)
    ends = (own + kept).cumsum(0)
    before = torch.cat([total.new_zeros(1), total[ends[:-1] - 1]])  # what the users before have
    reached = torch.searchsorted(total, before + k - 1e-6)
    beta = scores[order[torch.minimum(reached, ends - 1)]]
    return torch.sigmoid((s - beta[place]) / settings.loss_cutoff_temperature)
