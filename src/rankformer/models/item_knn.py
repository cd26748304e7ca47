"""Item-kNN: an item is recommended for being like those of the user's history.

Sarwar et al., "Item-based Collaborative Filtering Recommendation Algorithms", WWW 2001; Deshpande and Karypis,
"Item-based Top-N Recommendation Algorithms", TOIS 2004.

    together     c_ji = sum_u x_uj x_ui / d_u^p
    similarity   s_ji = c_ji / (c_jj^a c_ii^(1-a) + shrinkage),   s_ii = 0
    score        y_ui = sum_j x_uj s_ji      over the `neighbours` items j that are most similar to i

x_uj is 1 for an item of the history (`duplicates=count`: how often it occurs), d_u the sum of the user's row. a = 1/2
is the cosine, and `shrinkage` lowers it where few users support it; a = 1 is the fraction of j's users who have i
(Deshpande and Karypis' conditional probability), a < 1/2 favours rare items less. p = 1 gives each user one vote.
Departures: both papers take the neighbours of the history's items and Sarwar et al. divide by the sum of the
similarities, here each recommended item has its neighbours and the sum is not divided. Ties go to the lower index.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import diags_array

from rankformer.graph.bipartite import BipartiteGraph, positive_sums
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.item_matrix import SparseWeights, largest_products
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.settings import TunedSettings


class ItemKNNSettings(TunedSettings, ItemWeightSettings):
    """Hyperparameters of item-kNN."""

    neighbours: int = Field(default=100, ge=1)
    """Most similar items that are kept for each item."""
    shrinkage: float = Field(default=10.0, ge=0)
    """Added to the denominator of the similarity; lowers it where few users have both items."""
    asymmetry: float = Field(default=0.5, ge=0, le=1)
    """Exponent a of the normalisation by the history's item; 0.5 is the cosine, 1 the conditional probability."""
    user_power: float = Field(default=0.0, ge=0)
    """Power p of the user's size by which a user's votes are divided; 0 for none, 1 for one vote per user."""


class ItemKNN(ClosedFormModel):
    """Items recommended for being similar to those of the user's history.

    Use it when lists must be explained by "because you bought", or as the baseline that is hard to beat on sparse logs.
    """

    name = "item-knn"
    title = "Item-kNN"
    paper = "Sarwar et al., Item-based Collaborative Filtering Recommendation Algorithms, WWW 2001"
    settings: ItemKNNSettings
    uses_weights = True
    deterministic = True
    has_vectors = False
    ladder = {
        "shrinkage": (0.0, 10.0, 50.0, 200.0),
        "neighbours": (100, 300, 1000),
        "asymmetry": (0.5, 0.75, 1.0),
        "user_power": (0.0, 0.5, 1.0),
    }
    search_space = {
        "neighbours": {"low": 10, "high": 500, "log": True},
        "shrinkage": {"low": 1.0, "high": 500.0, "log": True},
        "asymmetry": {"low": 0.0, "high": 1.0},
        "user_power": {"low": 0.0, "high": 1.0},
    }

    @ClosedFormModel.takes(ItemKNNSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        x = graph.interaction_matrix(self.settings.count_duplicates)
        voters = (
            diags_array(positive_sums(x, 1).astype(np.float64) ** -self.settings.user_power) @ x
        ).T.tocsr()  # (m, n)
        right, shrinkage, a = x.astype(np.float64), self.settings.shrinkage, self.settings.asymmetry
        counts = np.maximum(voters.multiply(right.T).sum(axis=1), np.finfo(np.float64).tiny)  # (m,) c_ii
        target_norm, source_norm = counts ** (1 - a), counts**a

        def similarity(i: NDArray[Any], j: NDArray[Any], together: NDArray[np.float64]) -> NDArray[np.float64]:
            similarities: NDArray[np.float64] = together / (target_norm[i] * source_norm[j] + shrinkage)
            return similarities

        near = largest_products(voters, right, self.settings.neighbours, similarity)
        return ItemScorer(SparseWeights.of_rows(near), x, self.settings.count_duplicates)
