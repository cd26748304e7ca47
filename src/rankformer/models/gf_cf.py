"""GF-CF: collaborative filtering as a fixed low-pass filter over the item graph; nothing is trained.

Shen et al., "How Powerful is Graph Convolution for Recommendation?", CIKM 2021.

    normalised   R~ = D_u^-1/2 R D_i^-1/2,   V the right singular vectors of its `factors` largest singular values
    weights      W = R~^T R~ + alpha D_i^-1/2 V V^T D_i^1/2          a linear filter plus alpha times an ideal low-pass
    score        y_ui = sum_j x_uj W_ji

x_u is the user's row of R: 1 for an item of the history (`duplicates=count`: how often it occurs). W is never
multiplied out (`scoring.graph_filter`). V is found by iteration; the seed decides where that starts, and so rounding.
Departures: none in the equations; the authors' program leaves the low-pass filter out on one dataset, here
that is `low_pass_weight=0`. Where the last singular value taken equals the next one, V is one of several choices.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.structural_encoding import structural_encoding
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.graph_filter import GraphFilter
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.settings import TunedSettings


class GFCFSettings(TunedSettings, ItemWeightSettings):
    """Hyperparameters of GF-CF."""

    factors: int = Field(default=256, ge=1)
    """Singular vectors that the ideal low-pass filter lets through."""
    low_pass_weight: float = Field(default=0.3, ge=0)
    """Weight alpha of the ideal low-pass filter."""


class GFCF(ClosedFormModel):
    """Collaborative filtering as a fixed low-pass filter over the item graph; nothing is trained.

    Use it as a quick, strong baseline on denser logs.
    """

    name = "gf-cf"
    title = "GF-CF"
    paper = "Shen et al., How Powerful is Graph Convolution for Recommendation?, CIKM 2021"
    settings: GFCFSettings
    uses_weights = True
    deterministic = True
    has_vectors = False
    ladder = {"factors": (512, 256, 128, 64), "low_pass_weight": (0.1, 0.3, 0.6, 1.0)}
    search_space = {
        "factors": {"low": 16, "high": 512, "log": True},
        "low_pass_weight": {"low": 0.0, "high": 1.0},
    }

    @ClosedFormModel.takes(GFCFSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        count_duplicates = self.settings.count_duplicates
        x = graph.interaction_matrix(count_duplicates)
        vectors = self._singular_vectors(graph if count_duplicates else graph.distinct())
        return ItemScorer(GraphFilter(x, vectors, self.settings.low_pass_weight), x, count_duplicates)

    def _singular_vectors(self, graph: BipartiteGraph) -> Tensor:
        """Return V, (m, k); no column where the low-pass filter weighs nothing."""
        if self.settings.low_pass_weight == 0:
            return torch.zeros(graph.num_items, 0)
        count = min(self.settings.factors, graph.num_users, graph.num_items)
        rows = structural_encoding(graph, count, self.seed, normalized=True, exact=False)[graph.num_users :]
        # A column is a singular vector times the root of its value: at length 1 it is V's. Those beyond the rank are 0.
        return torch.nn.functional.normalize(rows, dim=0).cpu()
