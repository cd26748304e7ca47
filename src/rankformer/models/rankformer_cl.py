"""Rankformer-CL: Rankformer on a noisy warm-up of two propagations, trained with a contrastive loss as in XSimGCL.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025.

    warm-up    H_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i), likewise for items;   z^(k) = H + eps_cl sign(H) * rho,
               k = 1, 2
    L times    v <- (1 - tau) v + tau R(v), from v = z^(2)                               (Eq. 5-8; `RankAttention`)
    loss       BPR(v) + lambda_cl ( NCE(v, z^(1)) over the batch's distinct users + the same over its positive items )
    score      y_ui = v_u . v_i, the warm-up without noise

rho is a random non-negative vector of length one, fresh in each layer of each step (`layers.noisy_propagation`); NCE is
InfoNCE by cosine at temperature tau_cl (`losses.contrastive`). Learned: one table z^(0) of (n+m) x d. Departures:
initialization and learning rate (the paper's are normal and 1e-3, constant, for some sixty epochs); the
paper's noise has length 0.2, that of its program and of the default here is 0.1; the program evaluates embeddings that
still hold the noise of the last step, and rejects negatives against the batch only, here evaluation is without noise
and negatives are rejected against all of training.
"""

from functools import reduce
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.noisy_propagation import NoisyLayers, noise_free_propagation, noisy_propagation
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import RankWeights
from rankformer.losses.contrastive import BatchNodes, Views, contrastive_loss, take_rows
from rankformer.models.fold_in_rules import rank_rule, symmetric_rule
from rankformer.models.rankformer import Rankformer
from rankformer.models.trained import TrainedModel
from rankformer.models.xsimgcl import CONTRASTIVE_SPACE, ContrastiveSettings
from rankformer.scoring.fold_in import RankFoldIn
from rankformer.training.network import EmbeddingNetwork

_WARM_UP_LAYERS, _CL_LAYER = 2, 1


class RankformerCLSettings(
    ContrastiveSettings, defaults={"epochs": 12, "learning_rate": 5e-3, "initialization": "spectral"}
):
    """Hyperparameters of Rankformer-CL; the paper chose num_layers and tau for each dataset.

    Initialization and learning rate were chosen on validation (experiments/LOG.md): a fifth of the paper's epochs. On
    one of two datasets initialization=least-squares, Rankformer's default, was better still.
    """

    num_layers: int = Field(default=4, ge=0)
    """Rankformer layers L after the warm-up."""
    tau: float = Field(default=0.2, ge=0, le=1)
    """Step size of a layer: how much of its output replaces its input."""
    alpha: float = Field(default=2.0, ge=0)
    """Offset between positive and negative weights; below 2 the normaliser is an estimate."""


class RankformerCLNetwork(EmbeddingNetwork):
    """Two propagations, noisy in training, and L layers over the learned table."""

    def __init__(self, num_users: int, num_items: int, settings: RankformerCLSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.settings = settings
        weights = RankWeights(alpha=settings.alpha)
        self.layers = nn.ModuleList(RankAttention(settings.tau, weights) for _ in range(settings.num_layers))

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        return self._attend(graph, self._warm_up(graph, _WARM_UP_LAYERS))

    def fold_in(self, graph: BipartiteGraph) -> RankFoldIn:
        """Return the users' half of the layers, from the last propagation of the warm-up on."""
        last = symmetric_rule(graph, self._warm_up(graph, _WARM_UP_LAYERS - 1))
        return rank_rule(graph, last, self._warm_up(graph, _WARM_UP_LAYERS), self.layers)

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        layers = NoisyLayers(_WARM_UP_LAYERS, _CL_LAYER, self.settings.cl_noise, batch.seed, batch.step)
        chosen = BatchNodes.of(graph, batch)
        warm, view, table = noisy_propagation(graph, self.table, layers, chosen.nodes, "last")
        final = take_rows(self._attend(graph, warm), chosen.nodes)
        return contrastive_loss(chosen, Views(final, view, table), self.settings)

    def _warm_up(self, graph: BipartiteGraph, num_layers: int) -> Tensor:
        return noise_free_propagation(graph, self.table, num_layers, "last")

    def _attend(self, graph: BipartiteGraph, rows: Tensor) -> Tensor:
        return reduce(lambda v, layer: layer(graph, v), self.layers, rows)


class RankformerCL(TrainedModel):
    """Rankformer on a noisy warm-up, trained with a contrastive loss besides the ranking loss.

    Use it for the best quality of a single method, when training may take minutes.
    """

    name = "rankformer-cl"
    title = "Rankformer-CL"
    paper = Rankformer.paper
    network_class = RankformerCLNetwork
    settings: RankformerCLSettings
    uses_weights = True
    on_ranks = True
    ladder = {"cl_weight": (0.02, 0.05, 0.2), "tau": (0.1, 0.2, 0.5)}
    search_space = {
        "num_layers": {"low": 1, "high": 5},
        "tau": {"low": 0.05, "high": 0.9},
        **CONTRASTIVE_SPACE,
    }

    @TrainedModel.takes(RankformerCLSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
