"""What methods share that send a table of node vectors through a neural network: an input layer, dropout, decay.

    z = encode(X),   L = BPR(z) + l2 on the rows of X that occur + weight_decay / 2 * |weights of the encoder|^2

X is the learned table, one row per user and item, where the papers have fixed node features. The last term has the
gradient of Adam's weight decay in the authors' programs, and leaves X out, which it would erase.

Nothing here has hidden random state: linear layers start from the model's seed, and a dropout mask is a pure function
of (seed, step, its place in the forward pass).
"""

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.spectral import spectral_rows
from rankformer.layers.seeded import generator_of, seeded_dropout
from rankformer.losses.weight_decay import weight_decay
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import Batch


class EncoderSettings(TrainingSettings):
    """Knobs that all encoders have; the defaults were chosen on validation (experiments/LOG.md)."""

    epochs: int = Field(default=400, ge=1)
    """Most passes over the training pairs."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Adam's step size, for the table and for the encoder."""
    validate_every: int = Field(default=10, ge=1)
    """Epochs between validations, and between checkpoints."""
    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the learned table."""
    hidden_dim: int = Field(default=64, ge=1)
    """Width h inside the encoder."""
    output_dim: int = Field(default=64, ge=1)
    """Width of the final vectors."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of the entries that a training step sets to zero after each layer of the encoder."""
    weight_decay: float = Field(default=1e-3, ge=0)
    """Weight decay of the encoder's weights; the table is not among them, it has l2."""
    start: Literal["normal", "spectral"] = "spectral"
    """What the table starts from: Normal(0, 0.1^2), or the leading singular vectors of the training matrix."""


class EncoderNetwork(TableNetwork):
    """A table of node vectors and an encoder over it; a subclass says what the encoder is.

    Outside of `loss` the network is in evaluation mode: no dropout, and batch norms use their running statistics.
    """

    def __init__(self, num_nodes: int, settings: EncoderSettings, seed: int) -> None:
        super().__init__(num_nodes, settings.embedding_dim, seed)
        self.dropout = SeededDropout(settings.dropout)
        self.weight_decay = settings.weight_decay
        self._learning = False

    @abstractmethod
    def encode(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes, in whatever mode the network is."""

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes, (n+m, output_dim), users first."""
        self.train(self._learning)
        return self.encode(graph)

    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return BPR on the batch, with the penalties on the table's rows and on the encoder's weights."""
        self.dropout.begin(batch.seed, batch.step)
        self._learning = True
        try:
            ranking = super().loss(graph, batch, l2)
        finally:
            self._learning = False
        return ranking + weight_decay(self, self.weight_decay)


class SeededDropout(nn.Module):
    """Dropout whose masks are a pure function of (seed, step) and of the mask's place in the forward pass."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self._generator: torch.Generator | None = None

    def begin(self, seed: int, step: int) -> None:
        """Start the draws of a step."""
        self._generator = generator_of(seed, step) if self.rate else None

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows with a share of `rate` set to 0 and the rest scaled up; as they are in evaluation mode."""
        return seeded_dropout(rows, self.rate, self._generator if self.training else None)


class InputLayer(nn.Module):
    """dropout(relu(norm(x W + b))): from the table's width to the encoder's.

    Args:
        linear: W and b.
        norm: a normalisation of (N, h) rows, or `nn.Identity`.
        dropout: of the network.
    """

    def __init__(self, linear: nn.Linear, norm: nn.Module, dropout: SeededDropout) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = linear, norm, dropout

    def forward(self, rows: Tensor) -> Tensor:
        """Return the (N, h) rows that the layers start from."""
        result: Tensor = self.dropout(torch.relu(self.norm(self.linear(rows))))
        return result


class EncoderModel(GradientModel):
    """A model whose network is an encoder."""

    settings: EncoderSettings
    settings_class: ClassVar[type[EncoderSettings]]

    def initialise(self, network: TableNetwork, graph: BipartiteGraph) -> None:
        """Set the table to singular vectors if the settings ask for it.

        Behind a normalisation a random start is as large as all that is learned and never fades, which these are not.
        """
        if self.settings.start == "spectral":
            with torch.no_grad():
                network.table.copy_(spectral_rows(graph, self.settings.embedding_dim, self.seed))
