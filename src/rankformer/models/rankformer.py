"""Rankformer: a graph transformer whose layer is one gradient step of the ranking objective.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025.

    warm-up    v_u = 1/d_u sum_{i in N_u} z0_i,   v_i = 1/d_i sum_{u in N_i} z0_u        (Sec. 3.3, last paragraph)
    L times    v <- (1 - tau) v + tau R(v)                                               (Eq. 5-8; `RankAttention`)
    score      y_ui = v_u . v_i

Learned: one table z0 of (n+m) x d, drawn from Normal(0, 0.1^2). Loss: BPR with one negative per pair (Eq. 1 with
-ln sigma, the mean over pairs) plus `l2` on the rows of z0 that occur. Departures from the paper: embeddings are
evaluated after the optimiser's step, where its code uses those from before it.
"""

from functools import partial
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.graph.spectral import spectral_rows
from rankformer.layers.light_propagation import neighbour_means
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import RankWeights
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.models.fold_in_rules import mean_rule, rank_rule
from rankformer.scoring.rank_fold_in import RankFoldIn
from rankformer.training.activations import Activations, apply_layers
from rankformer.training.settings import TrainingSettings

# Chosen on the validation parts of ali-display and epinions together (experiments/LOG.md).
_LEAST_SQUARES: dict[str, Any] = {"weight": 80.0, "regularization": 300.0, "rounds": 15}


class RankformerSettings(TrainingSettings):
    """Knobs of Rankformer; the defaults pass the paper's quality in a twentieth of its epochs (experiments/LOG.md)."""

    epochs: int = Field(default=100, ge=1)
    """Passes over the training pairs; the step size falls to 0 over them."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    validate_every: int = Field(default=10, ge=1)
    """Epochs between validations, and between checkpoints."""
    l2: float = Field(default=3e-4, ge=0)
    """Weight of the squared length of the learned rows, as they occur in a batch."""

    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the vectors."""
    num_layers: int = Field(default=4, ge=0)
    """Rankformer layers L after the warm-up."""
    tau: float = Field(default=0.4, ge=0, le=1)
    """Step size of a layer."""
    alpha: float = Field(default=2.0, ge=0)
    """Offset between positive and negative weights; below 2 the normaliser is an estimate."""
    negatives: Literal["push", "none", "pull"] = "push"
    """What untouched items do: push (Eq. 6), none (ablation), pull (plain Transformer)."""
    similarity: bool = True
    """Whether similarity is in the weights (off: LightGCN's uniform ones)."""
    benchmark: bool = True
    """Whether the benchmarks b+ and b- are in the weights."""
    normalize: bool = True
    """Whether rows are divided by C (Eq. 8)."""
    start: Literal["normal", "spectral", "least-squares"] = "least-squares"
    """What z0 starts from: Normal(0, 0.1^2), singular vectors of the training matrix at that size, or its weighted
    least-squares factors with entries of size 1."""
    activations: Activations = "float32"
    """What is kept of each layer for the backward pass: its output, that rounded to bfloat16, or only some of them."""

    @model_validator(mode="after")
    def _terms_fit_together(self) -> Self:
        self.rank_weights()
        return self

    def rank_weights(self) -> RankWeights:
        """Return the terms of Omega that these settings ask for."""
        return RankWeights(
            similarity=self.similarity,
            benchmark=self.benchmark,
            alpha=self.alpha,
            negatives=self.negatives,
            normalize=self.normalize,
        )


class RankformerNetwork(TableNetwork):
    """Warm-up and L layers over the learned table."""

    def __init__(self, num_nodes: int, settings: RankformerSettings, seed: int) -> None:
        super().__init__(num_nodes, settings.embedding_dim, seed)
        weights = settings.rank_weights()
        self.layers = nn.ModuleList(RankAttention(settings.tau, weights) for _ in range(settings.num_layers))
        self.activations = settings.activations

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes, (n+m, d), users first."""
        steps = [partial(step, graph) for step in (neighbour_means, *self.layers)]
        return apply_layers(steps, self.table, self.activations)

    def fold_in(self, graph: BipartiteGraph) -> RankFoldIn:
        """Return the users' half of the layers, with the item states that it runs against."""
        start = mean_rule(graph, self.table)
        return rank_rule(graph, start, neighbour_means(graph, self.table), self.layers)


class Rankformer(GradientModel):
    """Rankformer with the contract of every model: fit, recommend, similar_items, save, load."""

    name = "rankformer"
    paper = "Chen et al., Rankformer: A Graph Transformer for Recommendation based on Ranking Objective, WWW 2025"
    settings_class = RankformerSettings
    settings: RankformerSettings

    def build(self, num_nodes: int) -> RankformerNetwork:
        """Return the untrained network."""
        return RankformerNetwork(num_nodes, self.settings, self.seed)

    def initialise(self, network: TableNetwork, graph: BipartiteGraph) -> None:
        """Set z0 to what the settings ask for."""
        dim = self.settings.embedding_dim
        with torch.no_grad():
            if self.settings.start == "spectral":
                network.table.copy_(spectral_rows(graph, dim, self.seed))
            elif self.settings.start == "least-squares":
                factors = least_squares_factors(graph, dim, self.seed, **_LEAST_SQUARES)
                for side in (factors[: graph.num_users], factors[graph.num_users :]):
                    side /= side.square().mean().sqrt().clamp(min=1e-12)
                # Pairs that hang together with nothing else shrink to nothing; they keep their random rows.
                found = torch.linalg.vector_norm(factors, dim=1) > 1e-3
                network.table[found] = factors[found].cpu()
