"""RP3beta: items that a random walk of three steps reaches from the user, popular ones reached less.

Paudel, Christoffel, Newell and Bernstein, "Updatable, Accurate, Diverse, and Scalable Recommendations for Interactive
Applications", TiiS 2017; Christoffel et al., "Blockbusters and Wallflowers", RecSys 2015.

    steps      P_iu = (x_ui / d_i)^alpha,   P_ui = (x_ui / d_u)^alpha          user - item and item - user
    weights    W_ji = sum_u P_ju P_ui / d_i^beta,   W_jj = 0,   the `neighbours` largest of each row j are kept
    score      y_ui = sum_j x_uj W_ji

x_ui is 1 for an item of the history (`duplicates=count`: how often it occurs), d its sums over a user or an item. alpha
is `walk_exponent`, beta `popularity_exponent`: 0 is the walk itself, 1 divides it by the popularity of what it reaches.
Departures: none in the equations; ties go to the lower index.
"""

from typing import Any

import numpy as np
from pydantic import Field
from scipy.sparse import diags_array

from rankformer.graph.bipartite import BipartiteGraph, positive_sums
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.item_matrix import SparseWeights, largest_products
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.settings import TunedSettings


class RP3BetaSettings(TunedSettings, ItemWeightSettings):
    """Hyperparameters of RP3beta."""

    neighbours: int = Field(default=100, ge=1)
    """Weights that are kept for each item of a history, the largest."""
    walk_exponent: float = Field(default=1.0, gt=0)
    """Exponent alpha of the transition probabilities."""
    popularity_exponent: float = Field(default=0.4, ge=0)
    """Exponent beta of the popularity that weights are divided by."""


class RP3Beta(ClosedFormModel):
    """Items that a short random walk over the user-item graph reaches, popular ones reached less.

    Use it as a neighbourhood method that takes moments and copes with very popular items.
    """

    name = "rp3beta"
    title = "RP3beta"
    paper = "Paudel et al., Updatable, Accurate, Diverse, and Scalable Recommendations, TiiS 2017"
    settings: RP3BetaSettings
    uses_weights = True
    deterministic = True
    has_vectors = False
    ladder = {
        "popularity_exponent": (0.2, 0.4, 0.6, 0.8),
        "walk_exponent": (0.6, 1.0, 1.4),
        "neighbours": (100, 300, 1000),
    }
    search_space = {
        "neighbours": {"low": 10, "high": 500, "log": True},
        "walk_exponent": {"low": 0.3, "high": 2.0},
        "popularity_exponent": {"low": 0.0, "high": 1.0},
    }

    @ClosedFormModel.takes(RP3BetaSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        pairs, alpha = graph.interaction_matrix(self.settings.count_duplicates), self.settings.walk_exponent
        d_users, d_items = (positive_sums(pairs, axis).astype(np.float64) for axis in (1, 0))
        powered = pairs.astype(np.float64).power(alpha)
        to_users = (powered @ diags_array(d_items**-alpha)).T.tocsr()  # (m, n) P_iu
        fewer = diags_array(d_items**-self.settings.popularity_exponent)
        to_items = (diags_array(d_users**-alpha) @ powered @ fewer).tocsr()  # (n, m) P_ui / d_i^beta
        reached = largest_products(to_users, to_items, self.settings.neighbours, lambda i, j, weights: weights)
        return ItemScorer(SparseWeights.of_rows(reached.T.tocsr()), pairs, self.settings.count_duplicates)
