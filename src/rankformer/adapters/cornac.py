"""Cornac: `RankformerRecommender`, a recommender for its experiments and its hyperparameter search.

Scores rank items; they are not ratings, so Cornac's ranking metrics apply and its rating metrics mean nothing.
"""

from typing import Any

import numpy as np
from cornac.data import Dataset
from cornac.models import Recommender

from rankformer.adapters.common import Scores, fitted_model, log_of, new_model, scores_of
from rankformer.data.interactions import Interactions
from rankformer.models.base import Model


class RankformerRecommender(Recommender):
    """A model of this package in Cornac.

    Args:
        model: name of a model, or an instance; one that is fitted is used as it is when `trainable` is False.
        name: in Cornac's tables, by default the model's.
        use_ratings: whether ratings weigh the interactions; without, each counts 1.
        trainable: whether `fit` fits the model.
        verbose: whether it shows its progress.
        **settings: of the model; Cornac's search finds them by these names.
    """

    def __init__(
        self,
        model: str | Model = "blend",
        name: str | None = None,
        use_ratings: bool = False,
        trainable: bool = True,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        self.fitted = fitted_model(model, settings) or new_model(model, settings)
        super().__init__(name=name or type(self.fitted).title, trainable=trainable, verbose=verbose)
        self.model, self.use_ratings, self.settings = model, use_ratings, settings

    def clone(self, new_params: dict[str, Any] | None = None) -> "RankformerRecommender":
        """Return a recommender that is not fitted, with some of the arguments changed."""
        given = {name: getattr(self, name) for name in ("model", "name", "use_ratings", "trainable", "verbose")}
        return type(self)(**{**given, **self.settings, **(new_params or {})})

    def fit(self, train_set: Dataset, val_set: Dataset | None = None) -> "RankformerRecommender":
        """Fit the model; the validation set chooses its best epoch."""
        super().fit(train_set, val_set)
        users, items = self.user_ids[: self.num_users], self.item_ids[: self.num_items]
        if self.trainable:
            train = log_of(train_set.csr_matrix, users, items, weighted=self.use_ratings)
            valid = None if val_set is None else self._valid(train, val_set)
            self.fitted = new_model(self.model, self.settings).fit(train, valid, verbose=self.verbose)
        recommender = self.fitted.recommender
        self._users, self._items = recommender.user_ids.index_of(users), recommender.item_ids.index_of(items)
        return self

    def _valid(self, train: Interactions, val_set: Dataset) -> Interactions:
        users, items, _ = val_set.uir_tuple
        known = (users < self.num_users) & (items < self.num_items)
        parts = users[known].astype(np.int32), items[known].astype(np.int32)
        return Interactions(*parts, train.user_ids, train.item_ids)

    def score(self, user_idx: int, item_idx: int | None = None) -> Scores | float:
        """Return the user's score of an item, or of all items known from training; popularity for an unknown user."""
        user = self._users[user_idx] if self.knows_user(user_idx) else -1
        scores = scores_of(self.fitted.recommender, np.array([user]))[0]
        scores = np.where(self._items >= 0, scores[self._items], scores.min())
        return scores if item_idx is None else float(scores[item_idx] if self.knows_item(item_idx) else scores.min())
