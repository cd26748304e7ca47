"""Random embeddings through layers, without training: what figure-random computes (the paper's first figure)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rankformer.data.parts import Parts
from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import spmm
from rankformer.layers.light_propagation import light_propagation, neighbour_means, symmetric_weights
from rankformer.layers.rank_attention import rank_attention
from rankformer.layers.rank_weights import RankWeights
from rankformer.models.matrix_factorization import MatrixFactorizationNetwork, MatrixFactorizationSettings

# The caption leaves open whether Rankformer's warm-up is among the layers and whether LightGCN averages its layers
# as it does when it scores, so both readings of each are computed.
WARM, PLAIN, LIGHT_MEAN, LIGHT_LAST = (
    "rankformer after its warm-up",
    "rankformer",
    "lightgcn",
    "lightgcn, last layer",
)
NAMES = {
    WARM: "Rankformer after its warm-up",
    PLAIN: "Rankformer",
    LIGHT_MEAN: "LightGCN, mean of its layers",
    LIGHT_LAST: "LightGCN, last layer",
}


def untrained_quality(parts: Parts, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the NDCG@20 on the test part of Normal(0, scale^2) embeddings after 0, 1, ..., `layers` layers.

    Args:
        parts: train gives the graph and is left out of the lists, test is to be found.
        settings: variant, layers, tau, alpha, embedding_dim, scale, and draws: "own", or "authors" for the numbers that
            the authors' program draws from the same seed.
        seed: of the embeddings.
    """
    graph = BipartiteGraph.from_interactions(parts.train)
    measure = make_validator(parts.train, parts.test, "ndcg@20")
    # Matrix factorization is a table that scores by inner products: here the table is what the layers give.
    size = MatrixFactorizationSettings(embedding_dim=settings["embedding_dim"])
    network = MatrixFactorizationNetwork(graph.num_users, graph.num_items, size).requires_grad_(False)
    values = []
    with torch.no_grad():
        for z in _states(graph, _drawn(graph, settings, seed), settings):
            network.table.copy_(z)
            values.append(measure(network.scorer(graph))["ndcg@20"])
    return {"ndcg@20": values}


def _drawn(graph: BipartiteGraph, settings: dict[str, Any], seed: int) -> Tensor:
    dim: int = settings["embedding_dim"]
    scale: float = settings["scale"]
    generator = torch.Generator().manual_seed(seed)
    if settings["draws"] == "own":
        return torch.randn(graph.num_nodes, dim, generator=generator) * scale
    # The authors draw two embedding modules, which fill themselves once, and then fill each again with std 0.1.
    counts = (graph.num_users, graph.num_items)
    for count in counts:
        torch.empty(count, dim).normal_(generator=generator)
    return torch.cat([torch.empty(count, dim).normal_(0, scale, generator=generator) for count in counts])


def _states(graph: BipartiteGraph, table: Tensor, settings: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the embeddings after 0, 1, ... layers."""
    variant, depths = settings["variant"], range(1, settings["layers"] + 1)
    if variant == LIGHT_MEAN:
        yield from (light_propagation(graph, table, depth) for depth in (0, *depths))
        return
    if variant == LIGHT_LAST:
        yield table
        for _ in depths:
            table = spmm(graph, symmetric_weights(graph, table.dtype), table)
            yield table
        return
    z = neighbour_means(graph, table) if variant == WARM else table
    yield z
    weights = RankWeights(alpha=settings["alpha"])
    for _ in depths:
        z = rank_attention(graph, z, weights, settings["tau"])
        yield z
