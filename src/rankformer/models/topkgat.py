"""TopKGAT: graph attention whose weights are those of a smoothed precision at K, by learned thresholds of the users.

Chen et al., "TopKGAT: A Top-K Objective-Driven Architecture for Recommendation", WWW 2026.

    layer    w_ui = 4 sigma(a) sigma(-a) / sqrt(d_u d_i),   a = cos(z_u, z_i) - tanh(b_u^l)       on edges only
             z'_u = sum_{i in N_u} w_ui z_i,   z'_i = sum_{u in N_i} w_ui z_u                     L times
    score    y_ui = z_u . z_i of the last layer alone

There is no residual and no sum over layers. Learned: one table of (n+m) x d, and a threshold b for each user and layer,
from a standard normal. Loss: BPR with one negative per interaction plus `l2` on the embeddings of the table that occur.
Departures: Adam in place of AdamW, whose weight decay takes 1e-5 off every parameter per step; the table starts from
least-squares factors and `l2` follows the density of the log, where the paper has a normal table and 1e-4. A user or
item without interactions has the embedding 0. A new user has no threshold; the mean of the others takes its place.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.seeded import generator_of
from rankformer.layers.threshold_attention import threshold_attention
from rankformer.models.fold_in_rules import shrunk_items
from rankformer.models.trained import TrainedModel
from rankformer.scoring.fold_in import ThresholdFoldIn
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import L2_LADDER, DensitySettings


class TopKGATSettings(DensitySettings, defaults={"tune": True, "epochs": 300, "initialization": "least-squares"}):
    """Hyperparameters of TopKGAT; the defaults were chosen on validation (experiments/LOG.md)."""

    usual_l2 = 3e-4

    num_layers: int = Field(default=4, ge=1)
    """Layers L; the last one's output scores."""


class TopKGATNetwork(RankingNetwork):
    """The learned table and thresholds, and L layers over them."""

    def __init__(self, num_users: int, num_items: int, settings: TopKGATSettings) -> None:
        super().__init__(num_users, num_items, settings)
        drawn = torch.randn(settings.num_layers, num_users, generator=generator_of(settings.seed, 0, 0))
        self.thresholds = nn.Parameter(drawn)

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        return self._layers(graph)[-1]

    def fold_in(self, graph: BipartiteGraph) -> ThresholdFoldIn:
        """Return the user's half of the layers, with the mean threshold of the users that have interactions."""
        states = tuple(shrunk_items(graph, z) for z in self._layers(graph)[:-1])
        known = graph.degree[: graph.num_users] > 0
        means = torch.tanh(self.thresholds)[:, known].double().mean(dim=1)
        return ThresholdFoldIn(states, tuple(means.tolist()))

    def _layers(self, graph: BipartiteGraph) -> list[Tensor]:
        """Return the table and the output of each layer, L + 1 times (n+m, d)."""
        z: list[Tensor] = [self.table]
        for thresholds in torch.tanh(self.thresholds):
            z.append(threshold_attention(graph, z[-1], thresholds))
        return z


class TopKGAT(TrainedModel):
    """Graph attention whose weights come from a smoothed precision at K, by thresholds learned for each user.

    Use it beside LightGCN on sparse logs; it folds in new users nearly as it would train them.
    """

    name = "topkgat"
    title = "TopKGAT"
    paper = "Chen et al., TopKGAT: A Top-K Objective-Driven Architecture for Recommendation, WWW 2026"
    network_class = TopKGATNetwork
    settings: TopKGATSettings
    ladder = {"num_layers": (2, 3, 4), "l2": L2_LADDER}
    search_space = {"num_layers": {"low": 1, "high": 5}}

    @TrainedModel.takes(TopKGATSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
