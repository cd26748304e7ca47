"""Popularity: every user gets the items with the most training lines.

    y_ui = |{lines of item i in train}|,   ties by lower item index

Nothing is learned. It is the known answer that proves an evaluator, and the floor every method has to clear.
"""

import torch

from rankformer.data.interactions import Interactions
from rankformer.evaluation.popularity import popularity_embeddings
from rankformer.models.base import Learned, Model, Workplace
from rankformer.scoring.fold_in import Constant
from rankformer.settings import Settings


class PopularitySettings(Settings):
    """Popularity has no knobs."""


class Popularity(Model):
    """Popularity with the contract of every model."""

    name = "popularity"
    paper = "none: the most frequent items of the training part"
    settings_class = PopularitySettings

    def learn(self, train: Interactions, valid: Interactions | None, place: Workplace) -> Learned:
        """Return users = 1, items = line counts; a user outside the training data is a 1 like any other."""
        return Learned(popularity_embeddings(train), Constant(torch.ones(1, 1)))
