"""What the models trained by gradient train: networks, most of them with one table of a row per node."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.losses.bpr import bpr_batch, bpr_full
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import FoldIn
from rankformer.training.trainer import Batch


class TrainedNetwork(nn.Module, ABC):
    """A network that the one training loop trains; see `training.trainer` for what else it may have."""

    @abstractmethod
    def embeddings(self, graph: BipartiteGraph) -> Embeddings | AspectScorer:
        """Return what scores, without noise."""

    @abstractmethod
    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return the scalar to minimise on a batch."""

    def fold_in(self, graph: BipartiteGraph) -> FoldIn | None:
        """Return how users are embedded from their histories; None where they have a vector of their own only."""
        del graph
        return None


class TableNetwork(TrainedNetwork):
    """A network whose parameters start with one table of a row per node, trained by BPR."""

    def __init__(self, num_nodes: int, embedding_dim: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(num_nodes, embedding_dim, generator=generator) * 0.1)

    @abstractmethod
    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes, (n+m, d), users first."""

    def embeddings(self, graph: BipartiteGraph) -> Embeddings:
        """Return the final vectors."""
        z = self.propagate(graph)
        return Embeddings(z[: graph.num_users], z[graph.num_users :])

    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return BPR on the batch, with the penalty on the table's rows."""
        z = self.propagate(graph)
        if batch.edges is None:
            return bpr_full(graph, z, self.table, batch.negatives, l2)
        triples = graph.edge_users[batch.edges], graph.edge_items[batch.edges], batch.negatives
        return bpr_batch(z, self.table, triples, l2)
