"""One training step of each kind, ready to be called repeatedly."""

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.textbook import TextbookRankformer
from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.rankformer import Rankformer
from rankformer.training.trainer import TrainingLoop

PAPER = {"ali-display": (4, 0.5), "epinions": (4, 0.4), "yelp2018-lightgcn": (3, 0.4)}


def training_part(name: str) -> Interactions:
    return DataSource(source=name).load().train


def synthetic(num_edges: int, seed: int = 0) -> Interactions:
    """Return a graph with yelp2018-lightgcn's shape at another size: skewed items, ragged users."""
    generator = np.random.default_rng(seed)
    n, m = max(2, num_edges * 29 // 1000), max(2, num_edges * 35 // 1000)
    users = generator.integers(0, n, num_edges)
    items = (m * generator.random(num_edges) ** 2).astype(np.int64)
    return Interactions.from_indices(users, items, n, m, name=f"synthetic-{num_edges}")


def our_step(train: Interactions, num_layers: int, tau: float) -> Callable[[], float]:
    model = Rankformer(num_layers=num_layers, tau=tau, seed=0)
    graph = BipartiteGraph.from_interactions(train)
    loop = TrainingLoop(model.build(graph.num_nodes), graph, model.settings, seed=0)
    return lambda: loop.one_step(None)


def textbook_step(train: Interactions, num_layers: int, tau: float) -> Callable[[], float]:
    n, m = train.num_users, train.num_items
    users, items = torch.from_numpy(train.users.astype(np.int64)), torch.from_numpy(train.items.astype(np.int64))
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(n + m, 64, generator=generator) * 0.1
    network = TextbookRankformer(users, items, n, m, num_layers, tau, table)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    keys = users * m + items

    def step() -> float:
        loss = network.loss(network.draw_negatives(keys), 1e-4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
