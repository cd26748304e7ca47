"""XSimGCL: LightGCN trained on noisy layers, with a contrastive loss between their average and one of them.

Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE 2023.

    layer    H_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i), likewise for items;   z^(k) = H + eps_cl sign(H) * rho
    mean     v = 1/K sum_{k=1..K} z^(k)                                    layer 0 is left out, unlike in LightGCN
    loss     BPR(v) + lambda_cl ( NCE(v, z^(l*)) over the batch's distinct users + the same over its positive items )
    score    y_ui = v_u . v_i, all layers without noise

rho is a random non-negative vector of length one, fresh in each layer of each step (`layers.noisy_propagation`); NCE is
InfoNCE by cosine at temperature tau_cl (`losses.contrastive`). Learned: one table z^(0) of (n+m) x d.

Departures from the authors' program (SELFRec): initialization, weight, noise, temperature and learning rate (theirs are
initialization=xavier-uniform, cl_weight=0.2, cl_noise=0.2, cl_temperature=0.15, learning_rate=1e-3, schedule=constant,
num_layers=2); softplus in place of -ln(1e-5 + sigma), the same but for badly ranked triples; L2 is on the learned
embeddings of u, i and j (`l2_on=final` has theirs); validation and early stopping in place of twenty epochs evaluated
on the test part; duplicates are parallel edges; an embedding is noisy in the last layer only where the batch reads it.
A user or item without interactions has the embedding 0, so it scores 0 with everything, above whatever scores less:
test items unseen in training stay candidates.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation
from rankformer.layers.noisy_propagation import NoisyLayers, noise_free_propagation, noisy_propagation
from rankformer.losses.contrastive import BatchNodes, Views, contrastive_loss
from rankformer.models.fold_in_rules import symmetric_rule
from rankformer.models.trained import TrainedModel
from rankformer.scoring.fold_in import WeightedSum
from rankformer.training.network import EmbeddingNetwork
from rankformer.training.settings import RankingSettings

CONTRASTIVE_SPACE: dict[str, Any] = {
    "initialization": ["normal", "xavier-uniform", "spectral", "least-squares"],
    "cl_weight": {"low": 0.01, "high": 1.0, "log": True},
    "cl_noise": {"low": 0.02, "high": 0.5, "log": True},
    "cl_temperature": {"low": 0.05, "high": 0.5, "log": True},
}


class ContrastiveSettings(
    RankingSettings, defaults={"tune": True, "batch_size": 2048, "schedule": "cosine", "validate_every": 1}
):
    """How a contrastive method is trained: by mini-batches, whose nodes are each other's negatives.

    With batch_size none the contrastive loss is quadratic in the users and items.
    """

    cl_weight: float = Field(default=0.05, ge=0)
    """Weight lambda_cl of the contrastive loss."""
    cl_noise: float = Field(default=0.1, ge=0)
    """Length eps_cl of the noise that training adds to each embedding after each propagation."""
    cl_temperature: float = Field(default=0.15, gt=0)
    """Temperature tau_cl of the contrastive loss."""
    l2_on: Literal["initial", "final"] = "initial"
    """What l2 weighs: squares of the learned embeddings of u, i, j, or SELFRec's norms of the final ones of u, i."""


class XSimGCLSettings(
    ContrastiveSettings,
    defaults={
        "epochs": 20,
        "learning_rate": 3e-3,
        "l2": 3e-4,
        "initialization": "least-squares",
        "cl_temperature": 0.2,
    },
):
    """Hyperparameters of XSimGCL; the defaults were chosen on validation (experiments/LOG.md)."""

    num_layers: int = Field(default=3, ge=1)
    """Propagation layers K; the final embeddings are the mean over layers 1 to K."""
    cl_layer: int = Field(default=1, ge=1)
    """The layer l* in 1..K that the mean is contrasted with."""

    @model_validator(mode="after")
    def _cl_layer_exists(self) -> Self:
        self.noisy_layers()
        return self

    def noisy_layers(self, seed: int = 0, step: int = 0) -> NoisyLayers:
        """Return how the pass of a training step runs."""
        return NoisyLayers(self.num_layers, self.cl_layer, self.cl_noise, seed, step)


class XSimGCLNetwork(EmbeddingNetwork):
    """The learned table, propagated K times and averaged; with noise in training."""

    def __init__(self, num_users: int, num_items: int, settings: XSimGCLSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.settings = settings

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        return noise_free_propagation(graph, self.table, self.settings.num_layers, "mean")

    def fold_in(self, graph: BipartiteGraph) -> WeightedSum:
        """Return the last propagation: the mean of layers 1..K is one of the mean of layers 0..K-1."""
        return symmetric_rule(graph, light_propagation(graph, self.table, self.settings.num_layers - 1))

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        chosen, layers = BatchNodes.of(graph, batch), self.settings.noisy_layers(batch.seed, batch.step)
        views = Views(*noisy_propagation(graph, self.table, layers, chosen.nodes, "mean"))
        return contrastive_loss(chosen, views, self.settings)


class XSimGCL(TrainedModel):
    """LightGCN's propagation with noise in its layers and a contrastive loss between them.

    Use it on denser logs with long-tail items; it trains in mini-batches and folds in new users.
    """

    name = "xsimgcl"
    title = "XSimGCL"
    paper = "Yu et al., XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation, TKDE 2023"
    network_class = XSimGCLNetwork
    settings: XSimGCLSettings
    uses_weights = True
    on_ranks = True
    ladder = {"cl_weight": (0.02, 0.05, 0.2), "cl_temperature": (0.1, 0.2, 0.4)}
    search_space = {"num_layers": {"low": 1, "high": 3}, **CONTRASTIVE_SPACE}

    @TrainedModel.takes(XSimGCLSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
