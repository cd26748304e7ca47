"""Random rows through layers, without training: how far the architecture alone gets (the paper's first figure)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rankformer.data.interactions import Parts
from rankformer.evaluation.validator import make_validator
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import spmm
from rankformer.layers.light_propagation import light_propagation, neighbour_means, symmetric_weights
from rankformer.layers.rank_attention import rank_attention
from rankformer.layers.rank_weights import RankWeights
from rankformer.scoring.embeddings import Embeddings

# The caption leaves open whether Rankformer's warm-up is among the layers and whether LightGCN averages its layers
# as it does when it scores, so both readings of each are computed.
VARIANTS = ("rankformer", "rankformer after its warm-up", "lightgcn", "lightgcn, last layer")


def untrained_quality(parts: Parts, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the NDCG@20 on the test part of Normal(0, scale^2) rows after 0, 1, ..., `layers` layers.

    Args:
        parts: train gives the graph and is left out of the lists, test is to be found.
        settings: variant, layers, tau, alpha, embedding_dim, scale.
        seed: of the rows.
    """
    graph = BipartiteGraph.from_interactions(parts.train)
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(graph.num_nodes, settings["embedding_dim"], generator=generator) * settings["scale"]
    measure = make_validator(parts.train, parts.test, "ndcg@20")
    values = []
    with torch.no_grad():
        for z in _states(graph, table, settings):
            values.append(measure(Embeddings(z[: graph.num_users], z[graph.num_users :]))["ndcg@20"])
    return {"ndcg@20": values}


def _states(graph: BipartiteGraph, table: Tensor, settings: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the rows after 0, 1, ... layers."""
    variant, depths = settings["variant"], range(1, settings["layers"] + 1)
    if variant == "lightgcn":
        yield from (light_propagation(graph, table, depth) for depth in (0, *depths))
        return
    if variant == "lightgcn, last layer":
        yield table
        for _ in depths:
            table = spmm(graph, symmetric_weights(graph, table.dtype), table)
            yield table
        return
    z = neighbour_means(graph, table) if variant == "rankformer after its warm-up" else table
    yield z
    weights = RankWeights(alpha=settings["alpha"])
    for _ in depths:
        z = rank_attention(graph, z, weights, settings["tau"])
        yield z
