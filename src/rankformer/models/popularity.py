"""Popularity: every user gets the items with the most training lines.

    y_ui = |{lines of item i in train}|,   ties by lower item index

Nothing is learned. It is the known answer that proves an evaluator, and the floor every method has to clear.
"""

from rankformer.data.interactions import Interactions
from rankformer.embeddings import Embeddings
from rankformer.evaluation.popularity import popularity_embeddings
from rankformer.models.base import Model, Workplace
from rankformer.settings import Settings


class PopularitySettings(Settings):
    """Popularity has no knobs."""


class Popularity(Model):
    """Popularity with the contract of every model."""

    name = "popularity"
    paper = "none: the most frequent items of the training part"
    settings_class = PopularitySettings

    def learn(self, train: Interactions, valid: Interactions | None, place: Workplace) -> Embeddings:
        """Return users = 1, items = line counts."""
        return popularity_embeddings(train)
