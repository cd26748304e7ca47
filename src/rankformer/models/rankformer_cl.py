"""Rankformer-CL: Rankformer on a noisy warm-up of two propagations, trained with a contrast as in XSimGCL.

Chen et al., "Rankformer: A Graph Transformer for Recommendation based on Ranking Objective", WWW 2025.

    warm-up    H_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i), likewise for items;   z^(k) = H + eps_cl sign(H) * rho,
               k = 1, 2
    L times    v <- (1 - tau) v + tau R(v), from v = z^(2)                               (Eq. 5-8; `RankAttention`)
    loss       BPR(v) + lambda_cl ( NCE(v, z^(1)) over the batch's distinct users + the same over its positive items )
    score      y_ui = v_u . v_i, the warm-up without noise

rho is a random non-negative row of length one, fresh in each layer of each step (`layers.noisy_propagation`); NCE is
InfoNCE by cosine at temperature tau_cl (`losses.contrastive`). Learned: one table z^(0) of (n+m) x d. Departures:
start and step size (the paper's are start=normal, learning_rate=1e-3, schedule=constant, for some sixty epochs); the
paper's noise has length 0.2, that of its program and of the default here is 0.1; the program evaluates embeddings that
still hold the noise of the last step, and rejects negatives against the batch only, here evaluation is without noise
and negatives are rejected against all of training.
"""

from functools import reduce
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.noisy_propagation import Noise, NoisyLayers, noisy_last, quiet_last
from rankformer.layers.rank_attention import RankAttention
from rankformer.layers.rank_weights import RankWeights
from rankformer.losses.contrastive import (
    BatchNodes,
    ContrastiveSettings,
    Views,
    contrastive_loss,
    start_table_,
    take_rows,
)
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.models.fold_in_rules import rank_rule, symmetric_rule
from rankformer.models.rankformer import Rankformer
from rankformer.scoring.rank_fold_in import RankFoldIn
from rankformer.training.trainer import Batch

_WARM_UP_LAYERS, _CONTRAST_LAYER = 2, 1
_START_SIZE = 0.1  # of least-squares rows: as large as the other starts


class RankformerCLSettings(ContrastiveSettings):
    """Knobs of Rankformer-CL; the paper chose num_layers and tau for each dataset.

    Start and step size were chosen on validation (experiments/LOG.md): a fifth of the paper's epochs. On one of two
    datasets start=least-squares, Rankformer's own, was better still.
    """

    epochs: int = Field(default=12, ge=1)
    """Passes over the training pairs; the step size falls to 0 over them."""
    learning_rate: float = Field(default=5e-3, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    start: Literal["normal", "xavier", "spectral", "least-squares"] = "spectral"  # type: ignore[assignment]
    """What z0 starts from: Normal(0, 0.1^2), Xavier's uniform range, singular vectors, or least-squares factors."""
    num_layers: int = Field(default=4, ge=0)
    """Rankformer layers L after the warm-up."""
    tau: float = Field(default=0.2, ge=0, le=1)
    """Step size of a layer."""
    alpha: float = Field(default=2.0, ge=0)
    """Offset between positive and negative weights; below 2 the normaliser is an estimate."""


class RankformerCLNetwork(TableNetwork):
    """Two propagations, noisy in training, and L layers over the learned table."""

    def __init__(self, num_nodes: int, settings: RankformerCLSettings, seed: int) -> None:
        super().__init__(num_nodes, settings.embedding_dim, seed)
        self.settings = settings
        weights = RankWeights(alpha=settings.alpha)
        self.layers = nn.ModuleList(RankAttention(settings.tau, weights) for _ in range(settings.num_layers))

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes without noise, (n+m, d), users first; not differentiable."""
        return self._attend(graph, quiet_last(graph, self.table, _WARM_UP_LAYERS))

    def fold_in(self, graph: BipartiteGraph) -> RankFoldIn:
        """Return the users' half of the layers, from the last propagation of the warm-up on."""
        start = symmetric_rule(graph, quiet_last(graph, self.table, _WARM_UP_LAYERS - 1))
        return rank_rule(graph, start, quiet_last(graph, self.table, _WARM_UP_LAYERS), self.layers)

    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return ranking, penalty and contrast of the batch on one noisy pass."""
        noise = Noise(self.settings.cl_noise, batch.seed, batch.step)
        layers = NoisyLayers(_WARM_UP_LAYERS, _CONTRAST_LAYER, noise)
        chosen = BatchNodes.of(graph, batch)
        warm, contrast, table = noisy_last(graph, self.table, layers, chosen.nodes)
        final = take_rows(self._attend(graph, warm), chosen.nodes)
        return contrastive_loss(chosen, Views(final, contrast, table), l2, self.settings)

    def _attend(self, graph: BipartiteGraph, rows: Tensor) -> Tensor:
        return reduce(lambda v, layer: layer(graph, v), self.layers, rows)


class RankformerCL(GradientModel):
    """Rankformer-CL with the contract of every model: fit, recommend, similar_items, save, load."""

    name = "rankformer-cl"
    paper = Rankformer.paper
    settings_class = RankformerCLSettings
    settings: RankformerCLSettings

    def build(self, num_nodes: int) -> RankformerCLNetwork:
        """Return the untrained network."""
        return RankformerCLNetwork(num_nodes, self.settings, self.seed)

    def initialise(self, network: TableNetwork, graph: BipartiteGraph) -> None:
        """Set the table to the start that the settings ask for."""
        knobs = self.settings
        if knobs.start != "least-squares":
            start_table_(network.table, graph, knobs, self.seed)
            return
        Rankformer(seed=self.seed, start="least-squares", embedding_dim=knobs.embedding_dim).initialise(network, graph)
        with torch.no_grad():
            network.table.mul_(_START_SIZE)
