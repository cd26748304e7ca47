"""The networks that the training loop trains."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import random_bits
from rankformer.graph.unit_rows import unit_rows
from rankformer.initialization import grow_, initialize_, random_rows, random_table
from rankformer.losses import RANKING_LOSSES
from rankformer.losses.l2 import batch_l2
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import FoldIn
from rankformer.training.context import Validate, WarmStart
from rankformer.training.settings import EmbeddingSettings, RankingSettings, TrainingSettings


class Network(nn.Module):
    """What the training loop trains; built from the numbers of users and items and the settings of its model."""

    learns_from: ClassVar[Literal["interactions", "nodes"]] = "interactions"  # each with a negative item, or nodes

    def __init__(self, num_users: int, num_items: int, settings: TrainingSettings) -> None:
        super().__init__()
        self.num_users, self.num_items, self.seed = num_users, num_items, settings.seed
        self.batch_size, self.by_user = settings.batch_size, settings.batch_by == "users"

    @abstractmethod
    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        """Return the scalar to minimise on a batch."""

    @abstractmethod
    def scorer(self, graph: BipartiteGraph) -> Scorer:
        """Return what scores, without noise; called at every validation."""

    def final_scorer(self, graph: BipartiteGraph) -> Scorer:
        """Return what scores after training, with everything that fold-in needs."""
        return self.scorer(graph)

    def validated(self, graph: BipartiteGraph, validate: Validate, scorer: Scorer) -> dict[str, float]:
        """Return the metrics of a scorer of this network, which may choose by them how it scores."""
        return validate(scorer)

    def initialize(self, graph: BipartiteGraph) -> None:
        """Set the parameters that depend on the training interactions, before the first step."""

    def continue_from(self, graph: BipartiteGraph, warm: WarmStart) -> None:
        """Take the parameters of an earlier fit, in place of `initialize`; what is new stays as it was drawn."""
        n, m = warm.scorer.num_users, warm.scorer.num_items
        for name, value in self.state_dict().items():
            old = warm.parameters[name]
            if old.ndim and len(old) == n + m and len(value) == graph.num_nodes:
                grow_(value, old, n, graph)
            else:
                value[tuple(slice(size) for size in old.shape)] = old

    def own(self, graph: BipartiteGraph) -> dict[str, Tensor]:
        """Return what this rank keeps of the parameters: all of them, or its rows of a table."""
        return {name: graph.own_rows(value) for name, value in self.state_dict().items()}

    def load_own(self, graph: BipartiteGraph, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `own` returned on each rank."""
        self.load_state_dict({name: graph.all_rows(value) for name, value in tensors.items()})

    def batches(self, graph: BipartiteGraph, epoch: int) -> Iterator[Tensor | None]:
        """Yield what each step of an epoch learns from: edge numbers in the whole graph, None for all of them."""
        if self.batch_size is None or self.batch_size >= graph.all_edges:
            yield None
            return
        numbers = graph.edge_users.long() if self.by_user else torch.arange(graph.all_edges, device=graph.device)
        # Sorting random keys is a permutation that depends on (seed, epoch) alone; -epoch keeps clear of step numbers.
        order = torch.argsort(random_bits(self.seed, -epoch, numbers), stable=True)
        yield from torch.split(order, self.batch_size)

    def after_step(self, graph: BipartiteGraph, batch: Batch) -> None:
        """Update buffers after the optimiser's step; every draw is decided by the batch's seed and step."""


class EmbeddingNetwork(Network):
    """A network over one learned table of (n+m) x d embeddings, users first."""

    initial_scale: ClassVar[float] = 0.1  # root mean square of a least-squares table

    def __init__(
        self, num_users: int, num_items: int, settings: EmbeddingSettings, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(num_users, num_items, settings)
        self.initialization, self.item_norm_power = settings.initialization, settings.item_norm_power
        size = num_users, num_items, settings.embedding_dim
        self.table = nn.Parameter(random_table(settings.initialization, *size, settings.seed, generator))

    def initialize(self, graph: BipartiteGraph) -> None:
        if graph.whole is not None:  # the rows of this rank's users and of the items, out of the whole table
            self.table.data.copy_(random_rows(graph, self.initialization, self.table.shape[1], self.seed))
        initialize_(self.table, graph, self.initialization, self.seed, self.initial_scale)

    @abstractmethod
    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final embeddings of all nodes, (n+m, d), users first."""

    def scorer(self, graph: BipartiteGraph) -> Embeddings:
        """Return the final embeddings; items are scaled where scores are cosines.

        Users keep their lengths, which change no list: so they stay what fold-in computes.
        """
        z = self.propagate(graph)
        users, items = z[: graph.num_users], z[graph.num_users :]
        if self.item_norm_power != 1:
            lengths = torch.linalg.vector_norm(items, dim=1, keepdim=True)
            items = unit_rows(items) * lengths**self.item_norm_power
        return Embeddings(users, items)

    def final_scorer(self, graph: BipartiteGraph) -> Embeddings:
        return replace(self.scorer(graph), fold_in=self.fold_in(graph))

    def fold_in(self, graph: BipartiteGraph) -> FoldIn | None:
        """Return how users are embedded from their histories; None where that takes an embedding of their own."""
        return None


class RankingNetwork(EmbeddingNetwork):
    """An embedding network trained by a ranking loss on its final embeddings, with L2 regularization of the table."""

    def __init__(self, num_users: int, num_items: int, settings: RankingSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.ranking = settings

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        triples, (z, table) = batch.triples(graph).gathered(self.propagate(graph), self.table)
        ranking = RANKING_LOSSES[self.ranking.loss].of(z, triples, self.ranking)
        return ranking + batch_l2(table, triples, self.ranking.l2_strength(graph))
