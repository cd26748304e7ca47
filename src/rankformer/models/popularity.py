"""Popularity: every user gets the items with the most training interactions.

    y_ui = c_i^p,   c_i = |{training interactions of item i}|, or the sum of their weights;   ties by lower item index

The power p changes no list of its own, only how far apart the scores are, which counts where they are added to others.

Nothing is learned. It tests an evaluator by a known answer, and is the baseline every method must beat.
"""

from typing import Any

import torch
from pydantic import Field

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.closed_form import ClosedFormModel, ClosedFormSettings
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import Constant


class PopularitySettings(ClosedFormSettings):
    """The one hyperparameter of popularity."""

    exponent: float = Field(default=1.0, gt=0, le=1)
    """Power p of the counts; 0.5 in a blend, so that a few items do not outweigh all others."""


class Popularity(ClosedFormModel):
    """The most frequent items of the training part, the same for everyone.

    Use it as the baseline that every other method must beat.
    """

    name = "popularity"
    title = "Popularity"
    paper = "none: the most frequent items of the training part"
    settings: PopularitySettings
    uses_weights = True
    on_ranks = True
    deterministic = True
    personalized = False

    @ClosedFormModel.takes(PopularitySettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> Embeddings:
        """Return embeddings of dimension 1: 1 for every user, known or new, and the score of each item.

        Duplicates count each time. Counts are exact in float32 up to 2^24 interactions per item.
        """
        counts = graph.degree[graph.num_users :].cpu() ** self.settings.exponent
        return Embeddings(torch.ones(graph.num_users, 1), counts.float()[:, None], Constant(torch.ones(1, 1)))
