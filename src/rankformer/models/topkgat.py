"""TopKGAT: graph attention whose weights are those of a smoothed precision at K, by learned thresholds of the users.

Chen et al., "TopKGAT: A Top-K Objective-Driven Architecture for Recommendation", WWW 2026.

    layer    w_ui = 4 sigma(a) sigma(-a) / sqrt(d_u d_i),   a = cos(z_u, z_i) - tanh(b_u^l)       on edges only
             z'_u = sum_{i in N_u} w_ui z_i,   z'_i = sum_{u in N_i} w_ui z_u                     L times
    score    y_ui = z_u . z_i of the last layer alone

There is no residual and no sum over layers. Learned: one table of (n+m) x d, and a threshold b for each user and layer,
from a standard normal. Loss: BPR with one negative per interaction plus `l2` on the embeddings of the table that occur.
Departures: Adam in place of AdamW, whose weight decay takes 1e-5 off every parameter per step. The threshold belongs to
a user, so a new user cannot be embedded from a history. A user or item without interactions has the embedding 0.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.seeded import generator_of
from rankformer.layers.threshold_attention import threshold_attention
from rankformer.models.trained import TrainedModel
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import RankingSettings


class TopKGATSettings(RankingSettings):
    """Hyperparameters of TopKGAT."""

    num_layers: int = Field(default=4, ge=1)
    """Layers L; the last one's output scores."""


class TopKGATNetwork(RankingNetwork):
    """The learned table and thresholds, and L layers over them."""

    def __init__(self, num_users: int, num_items: int, settings: TopKGATSettings) -> None:
        super().__init__(num_users, num_items, settings)
        drawn = torch.randn(settings.num_layers, num_users, generator=generator_of(settings.seed, 0, 0))
        self.thresholds = nn.Parameter(drawn)

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        z: Tensor = self.table
        for thresholds in torch.tanh(self.thresholds):
            z = threshold_attention(graph, z, thresholds)
        return z


class TopKGAT(TrainedModel):
    """Graph attention whose weights come from a smoothed precision at K, by thresholds learned for each user.

    Use it beside LightGCN on sparse logs of known users; it cannot recommend to users outside its training data.
    """

    name = "topkgat"
    title = "TopKGAT"
    paper = "Chen et al., TopKGAT: A Top-K Objective-Driven Architecture for Recommendation, WWW 2026"
    network_class = TopKGATNetwork
    settings: TopKGATSettings
    ladder = {"num_layers": (2, 3, 4), "l2": (1e-5, 1e-4, 1e-3)}
    search_space = {"num_layers": {"low": 1, "high": 5}}

    @TrainedModel.takes(TopKGATSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
