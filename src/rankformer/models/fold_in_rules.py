"""Fold-in rules of networks that build a user's embedding from those of its items."""

from collections.abc import Iterable

from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import RankWeights
from rankformer.scoring.fold_in import RankFoldIn, WeightedSum


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
