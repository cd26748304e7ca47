"""Parts of all methods that encode learned embeddings by a neural network: input layer, dropout, decay.

    z = encode(X),   L = BPR(z) + l2 on the embeddings of X that occur + weight_decay / 2 * |weights of the encoder|^2

X is the learned table of users and items. The last term has the gradient of Adam's weight decay in the authors'
programs, and leaves X out, which it would erase. Departures of all of them from their papers: these classify nodes with
given features and have no recommendation experiment; table, BPR and the dimension of z are those of the comparison in
Rankformer's paper. Mini-batches of nodes, where a program has them, are not used: a step sees the whole graph.
Duplicates are parallel edges.

Nothing here has hidden random state: linear layers are initialized from the model's seed, and a dropout mask is a pure
function of (seed, step, its position in the forward pass).
"""

from abc import abstractmethod
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.seeded import SeededDropout
from rankformer.losses.l2 import weight_decay
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import RankingSettings

ENCODER_SPACE: dict[str, Any] = {
    "initialization": ["normal", "spectral", "least-squares"],
    "dropout": {"low": 0.0, "high": 0.5},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
}


class EncoderSettings(
    RankingSettings,
    defaults={"epochs": 400, "learning_rate": 3e-3, "validate_every": 10, "initialization": "spectral", "tune": True},
):
    """Hyperparameters that all encoders have; the defaults were chosen on validation (experiments/LOG.md).

    After a normalisation the noise of a random table does not fade; a spectral table has none.
    """

    hidden_dim: int = Field(default=64, ge=1)
    """Dimension h inside the encoder."""
    output_dim: int = Field(default=64, ge=1)
    """Dimension of the final embeddings."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Fraction of the entries that a training step sets to zero after each layer of the encoder."""
    weight_decay: float = Field(default=1e-3, ge=0)
    """Weight decay of the encoder's weights; the table is not among them, it has l2."""


class EncoderNetwork(RankingNetwork):
    """A table of node embeddings and an encoder over it; a subclass says what the encoder is.

    Outside of `loss` the network is in evaluation mode: no dropout, and batch norms use their running statistics.
    """

    def __init__(self, num_users: int, num_items: int, settings: EncoderSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.dropout = SeededDropout(settings.dropout)
        self.weight_decay = settings.weight_decay
        self._learning = False

    @abstractmethod
    def encode(self, graph: BipartiteGraph) -> Tensor:
        """Return the final embeddings of all nodes, in whatever mode the network is."""

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        self.train(self._learning)
        return self.encode(graph)

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        self.dropout.begin(batch.seed, batch.step)
        self._learning = True
        try:
            ranking = super().loss(graph, batch)
        finally:
            self._learning = False
        return ranking + weight_decay(self, self.weight_decay)


class InputLayer(nn.Module):
    """dropout(relu(norm(x W + b))): from the table's dimension to the encoder's, (N, h)."""

    def __init__(self, linear: nn.Linear, norm: nn.Module, dropout: SeededDropout) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = linear, norm, dropout

    def forward(self, rows: Tensor) -> Tensor:
        result: Tensor = self.dropout(torch.relu(self.norm(self.linear(rows))))
        return result


def layer_norm(dim: int, wanted: bool) -> nn.Module:
    """Return the normalisation of each of (N, dim) rows, or one that does nothing."""
    return nn.LayerNorm(dim) if wanted else nn.Identity()
