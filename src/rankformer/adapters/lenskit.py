"""LensKit 2025: `RankformerScorer`, a component that scores items in its pipelines.

A user of the training data is scored by the model; a query with nothing but a history is folded in, where the model
can; whoever is left is scored by popularity. An item that the model does not know has no score (nan).
"""

from typing import Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel, JsonValue

from rankformer.adapters.common import all_scores, described, fitted_model, log_of, new_model, scores_of
from rankformer.models.base import Model
from rankformer.scoring.histories import Histories


class RankformerConfig(BaseModel):
    """Configuration of the scorer."""

    model: str = "blend"
    """Name of a model."""
    settings: dict[str, JsonValue] = {}
    """Its settings."""
    use_ratings: bool = False
    """Whether ratings weigh the interactions; without, each counts 1."""


class RankformerScorer(Component[ItemList], Trainable):
    """A model of this package as a scorer of a LensKit pipeline."""

    config: RankformerConfig
    model: Model | None = None  # the fitted model

    @classmethod
    def of(cls, model: Model) -> "RankformerScorer":
        """Return the scorer of an instance; one that is fitted scores without training (`retrain=False`)."""
        scorer = cls(RankformerConfig(**described(model, {})))
        scorer.model = fitted_model(model, {})
        return scorer

    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:  # noqa: B008
        """Fit the model; seed and device are those of the options where the settings name none."""
        if self.model is not None and not options.retrain:
            return
        rating = "rating" if self.config.use_ratings else None
        matrix = data.interactions().matrix().scipy(rating, layout="csr")
        settings: dict[str, Any] = dict(self.config.settings)
        if options.rng is not None:
            settings.setdefault("seed", int(options.random_generator().integers(2**31)))
        if options.device is not None:
            settings.setdefault("device", options.device)
        log = log_of(matrix, data.users.ids(), data.items.ids(), weighted=self.config.use_ratings)
        self.model = new_model(self.config.model, settings).fit(log, verbose=False)

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with their scores for the user of the query."""
        if self.model is None:
            raise RuntimeError("the scorer is not trained; call train on it or on its pipeline first")
        asked, recommender = RecQuery.create(query), self.model.recommender
        user = recommender.user_ids.index_of([asked.user_id])
        history = np.zeros(0, dtype=np.int64)
        if asked.user_items is not None and (user[0] < 0 or recommender.cold[user[0]]) and recommender.can_fold_in:
            history = recommender.item_ids.index_of(asked.user_items.ids())
            history = history[history >= 0]
        if len(history):
            folded = recommender.scorer.for_histories(Histories.from_lists([history.tolist()]))
            scores = all_scores(folded, np.zeros(1, dtype=np.int64))[0]
        else:
            scores = scores_of(recommender, user)[0]
        index = recommender.item_ids.index_of(items.ids())
        return ItemList(items, scores=np.where(index >= 0, scores[index], np.nan))
