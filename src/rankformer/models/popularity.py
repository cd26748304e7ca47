"""Popularity: every user gets the items with the most training interactions.

    y_ui = |{training interactions of item i}|, or the sum of their weights,   ties by lower item index

Nothing is learned. It tests an evaluator by a known answer, and is the baseline every method must beat.
"""

from typing import Any

import torch

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.closed_form import ClosedFormModel, ClosedFormSettings
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import Constant


class PopularitySettings(ClosedFormSettings):
    """Popularity has no hyperparameters."""


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
        """Return embeddings of dimension 1: 1 for every user, known or new, and the count of each item.

        Duplicates count each time. Counts are exact in float32 up to 2^24 interactions per item.
        """
        counts = graph.degree[graph.num_users :].float().cpu()
        return Embeddings(torch.ones(graph.num_users, 1), counts[:, None], Constant(torch.ones(1, 1)))
