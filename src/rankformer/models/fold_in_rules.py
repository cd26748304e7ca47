"""Fold-in rules of networks that build a user's embedding from those of its items."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph, positive_sums
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import RankWeights
from rankformer.scoring.fold_in import RankFoldIn, WeightedSum

LAMBDAS = (1.0, 2.0, 4.0, 8.0, 16.0)  # of `expansion_rule`, in units of the mean variance


def mean_rule(graph: BipartiteGraph, rows: Tensor) -> WeightedSum:
    """Return v_u = 1/d_u sum_i rows_i."""
    return WeightedSum(_items_of(graph, rows).clone(), 1.0)


def symmetric_rule(graph: BipartiteGraph, rows: Tensor, own_embedding: bool = False) -> WeightedSum:
    """Return v_u = sum_i rows_i / sqrt(d_u d_i), one symmetric propagation from rows (n+m, d) of all nodes."""
    return WeightedSum(shrunk_items(graph, rows), 0.5, own_embedding)


def shrunk_items(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    """Return rows_i / sqrt(d_i) of the items, (m, d), from rows (n+m, d) of all nodes."""
    shrink = graph.divisor[graph.num_users :].rsqrt().to(rows.dtype).cpu()
    return _items_of(graph, rows) * shrink[:, None]


def expansion_rule(graph: BipartiteGraph, table: Tensor) -> WeightedSum:
    """Return z_u = c sum_i (C + lambda cbar I)^-1 (x_i - xbar) / sqrt(d_u), the users of a softmax loss over cosines.

    x_i are the items' embeddings at length 1, xbar and C their mean and covariance, cbar the mean of its diagonal.
    lambda is that of LAMBDAS whose embeddings of the training users have the highest mean cosine with the learned ones.
    A mean has the same direction as this sum, which is more like them in length; c is the best in least squares.

    Args:
        graph: the training interactions.
        table: (n+m, d) the learned embeddings.
    """
    rows = table.detach().double().cpu()
    users, x = rows[: graph.num_users], torch.nn.functional.normalize(rows[graph.num_users :], dim=1)
    x = x - x.mean(dim=0)
    covariance, least = x.T @ x / len(x), torch.finfo(torch.float64).tiny
    covariance /= covariance.diagonal().mean().clamp(min=least)
    histories = graph.interaction_matrix(count_duplicates=True).astype(np.float64)
    sums = torch.from_numpy(histories @ x.numpy() / np.sqrt(positive_sums(histories, 1))[:, None])  # (n, d)

    def solved(strength: float) -> Tensor:
        inverse: Tensor = torch.linalg.inv(covariance + strength * torch.eye(len(covariance), dtype=x.dtype))
        return inverse

    def likeness(strength: float) -> float:
        return float(torch.cosine_similarity(sums @ solved(strength), users, dim=1).mean())

    inverse = solved(max(LAMBDAS, key=likeness))
    folded = sums @ inverse
    scale = (folded * users).sum() / folded.square().sum().clamp(min=least)
    return WeightedSum((x @ inverse * scale).float(), 0.5, own_embedding=True)


def rank_rule(graph: BipartiteGraph, warm_up: WeightedSum, v: Tensor, layers: Iterable[nn.Module]) -> RankFoldIn:
    """Return the users' half of a stack of Rankformer layers, with the item states that it runs against.

    Args:
        graph: the training interactions.
        warm_up: how the users' embeddings before the first layer come from items.
        v: (n+m, d) all embeddings before the first layer.
        layers: the `RankAttention` layers, all of one kind.
    """
    states: list[Tensor] = []
    weights, tau = RankWeights(), 0.0
    for layer in layers:
        assert isinstance(layer, RankAttention)
        weights, tau = layer.weights, layer.tau
        states.append(_items_of(graph, v).clone())
        v = layer(graph, v)
    return RankFoldIn(warm_up, tuple(states), weights, tau)


def _items_of(graph: BipartiteGraph, rows: Tensor) -> Tensor:
    return rows.detach()[graph.num_users :].cpu()
