"""One training step of each kind, ready to be called repeatedly."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Unavailable, note
from benchmarks.textbook import TextbookRankformer
from rankformer.data.interactions import Interactions
from rankformer.data.source import DataSource
from rankformer.errors import DataError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.rankformer import Rankformer
from rankformer.models.rankformer_cl import RankformerCL
from rankformer.models.trained import TrainedModel
from rankformer.training.trainer import TrainingLoop

PAPER = {"ali-display": (4, 0.5), "epinions": (4, 0.4), "yelp2018-lightgcn": (3, 0.4)}
PAPER_CL = {"ali-display": (5, 0.1), "epinions": (3, 0.2)}
OTHER = (3, 0.4)  # layers and tau where the paper has no such dataset
TRAINING = {"epochs": 2000, "learning_rate": 0.1, "schedule": "constant", "l2": 1e-4, "initialization": "normal"}


def training_part(name: str) -> Interactions:
    return DataSource(source=name).load().train


def available(names: Sequence[str]) -> list[str]:
    """Return those datasets whose files are here; say which are not."""
    found = []
    for name in names:
        try:
            training_part(name)
            found.append(name)
        except DataError as error:
            note(f"  left out: {error}")
    if not found:
        raise Unavailable("none of its datasets is here")
    return found


def paper_rankformer(dataset: str, **settings: Any) -> Rankformer:
    """Return Rankformer as the paper trains it on a dataset, changed by the given settings."""
    num_layers, tau = PAPER.get(dataset, OTHER)
    return Rankformer(**{**TRAINING, "num_layers": num_layers, "tau": tau, **settings})


def paper_rankformer_cl(dataset: str, **settings: Any) -> RankformerCL:
    """Return Rankformer-CL as the paper trains it on a dataset, changed by the given settings."""
    num_layers, tau = PAPER_CL[dataset]
    return RankformerCL(**{"num_layers": num_layers, "tau": tau, **settings})


def synthetic(num_edges: int, size: int | None = None, seed: int = 0) -> Interactions:
    """Return a graph of E pairs among `size` users and as many items; the item at rank r is drawn as often as r^-1/2.

    Without a size there are E/64 of each.
    """
    generator = np.random.default_rng(seed)
    size = max(2, size or num_edges // 64)
    users = generator.integers(0, size, num_edges)
    items = (size * generator.random(num_edges) ** 2).astype(np.int64)
    return Interactions.from_indices(users, items, size, size, name=f"synthetic-{num_edges}")


def training_loop(train: Interactions, model: TrainedModel) -> TrainingLoop:
    graph = BipartiteGraph.from_interactions(train)
    network = model.network_class(graph.num_users, graph.num_items, model.settings)
    return TrainingLoop(network, graph, model.settings)


def our_step(train: Interactions, model: TrainedModel) -> Callable[[], float]:
    """Return a function that takes one full-batch step: sampling, forward, backward, optimiser."""
    loop = training_loop(train, model)
    return lambda: loop.one_step(None)


def textbook_step(train: Interactions, model: Rankformer) -> Callable[[], float]:
    """Return the same for the textbook version, with its own negatives."""
    n, m = train.num_users, train.num_items
    users, items = torch.from_numpy(train.users.astype(np.int64)), torch.from_numpy(train.items.astype(np.int64))
    table = torch.randn(n + m, model.settings.embedding_dim, generator=torch.Generator().manual_seed(0)) * 0.1
    loop = TextbookLoop(users, items, (n, m), model, table)
    keys = users * m + items
    return lambda: loop.one_step(loop.network.draw_negatives(keys))


class TextbookLoop:
    """The textbook version with its optimiser."""

    def __init__(self, users: Tensor, items: Tensor, size: tuple[int, int], model: Rankformer, table: Tensor) -> None:
        settings = model.settings
        self.network = TextbookRankformer(users, items, *size, settings.num_layers, settings.tau, table)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.l2 = settings.l2

    def one_step(self, negatives: Tensor) -> float:
        """Take one step on the given negatives (item indices, in the order of the edges); return its loss."""
        loss = self.network.loss(negatives, self.l2)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())
