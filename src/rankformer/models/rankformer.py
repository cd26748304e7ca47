"""Rankformer: a graph transformer whose layer is one gradient step of the ranking objective.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025.

    warm-up    v_u = 1/d_u sum_{i in N_u} z0_i,   v_i = 1/d_i sum_{u in N_i} z0_u        (Sec. 3.3, last paragraph)
    L times    v <- (1 - tau) v + tau R(v)                                               (Eq. 5-8; `RankAttention`)
    score      y_ui = v_u . v_i

Learned: one table z0 of (n+m) x d. Loss: BPR with one negative per interaction (Eq. 1 with -ln sigma, the mean over
interactions) plus `l2` on the embeddings of z0 that occur. Departures from the paper: the initialization of z0 (the
paper's is normal); embeddings are evaluated after the optimiser's step, where its code uses those from before it.
"""

from dataclasses import fields
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import neighbour_means
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import Curvature, RankWeights
from rankformer.layers.softmax_attention import SoftmaxAttention
from rankformer.models.fold_in_rules import mean_rule, rank_rule
from rankformer.models.trained import TrainedModel
from rankformer.scoring.fold_in import RankFoldIn
from rankformer.training.activations import Activations, apply_layers
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import L2_LADDER, DensitySettings


class RankformerSettings(
    DensitySettings,
    defaults={"epochs": 100, "schedule": "cosine", "validate_every": 10, "initialization": "least-squares"},
):
    """Hyperparameters of Rankformer; the defaults exceed the paper's quality in a twentieth of its epochs."""

    usual_l2 = 3e-4
    num_layers: int = Field(default=4, ge=0)
    """Rankformer layers L after the warm-up."""
    tau: float = Field(default=0.4, ge=0, le=1)
    """Step size of a layer: how much of its output replaces its input."""
    alpha: float = Field(default=2.0, ge=0)
    """Offset between positive and negative weights; below 2 the normaliser is an estimate."""
    negatives: Literal["push", "none", "pull"] = "push"
    """What items outside the history do: push (Eq. 6), none (ablation), pull (plain Transformer)."""
    similarity: bool = True
    """Whether similarity is in the weights (off: LightGCN's uniform ones)."""
    benchmark: bool = True
    """Whether the benchmarks b+ and b- are in the weights."""
    curvature: Curvature = 1
    """Sign of the similarity in the weights: 1 (Eq. 6), 0 (none), or -1, that of the second-order expansion of BPR."""
    normalize: bool = True
    """Whether the sums are divided by C (Eq. 8)."""
    layer: Literal["rank", "softmax"] = "rank"
    """What a layer is a gradient step of: the paper's objective, or a softmax over sampled items and users."""
    layer_temperature: float = Field(default=0.5, gt=0)
    """Temperature of a softmax layer."""
    layer_samples: int = Field(default=512, ge=1)
    """Items, and users, that a softmax layer pushes away from."""
    activations: Activations = "float32"
    """What is kept of each layer for the backward pass: its output, that rounded to bfloat16, or only some of them."""

    @model_validator(mode="after")
    def _terms_fit_together(self) -> Self:
        self.rank_weights()
        return self

    def rank_weights(self) -> RankWeights:
        """Return the terms of Omega that these settings choose."""
        return RankWeights(**{t.name: getattr(self, t.name) for t in fields(RankWeights) if hasattr(self, t.name)})

    def make_layer(self) -> nn.Module:
        """Return a layer of the kind that these settings choose."""
        if self.layer == "softmax":
            return SoftmaxAttention(self.tau, self.layer_temperature, self.layer_samples)
        return RankAttention(self.tau, self.rank_weights())


class RankformerNetwork(RankingNetwork):
    """Warm-up and L layers over the learned table."""

    initial_scale = 1.0

    def __init__(self, num_users: int, num_items: int, settings: RankformerSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.layers = nn.ModuleList(settings.make_layer() for _ in range(settings.num_layers))
        self.activations = settings.activations

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        steps = [partial(step, graph) for step in (neighbour_means, *self.layers)]
        return apply_layers(steps, self.table, self.activations)

    def fold_in(self, graph: BipartiteGraph) -> RankFoldIn | None:
        if not all(isinstance(layer, RankAttention) for layer in self.layers):
            return None
        return rank_rule(graph, mean_rule(graph, self.table), neighbour_means(graph, self.table), self.layers)


class Rankformer(TrainedModel):
    """A graph transformer whose layer is one gradient step of the ranking objective, in linear time.

    Use it on sparse logs, when new users must be embedded from their histories and scores explained.
    """

    name = "rankformer"
    title = "Rankformer"
    paper = "Chen et al., Rankformer: A Graph Transformer for Recommendation based on Ranking Objective, WWW 2025"
    network_class = RankformerNetwork
    settings: RankformerSettings
    uses_weights = True
    on_ranks = True
    ladder = {"tau": (0.2, 0.4, 0.8), "l2": L2_LADDER}
    search_space = {
        "num_layers": {"low": 1, "high": 5},
        "tau": {"low": 0.1, "high": 0.9},
        "alpha": {"low": 2.0, "high": 8.0, "log": True},
    }

    @TrainedModel.takes(RankformerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
