"""RecTools: `RankformerModel`, a model for its `cross_validate`, configurations and metrics.

Weights of the dataset count in models that use them. Users without interactions get the most popular items.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field
from rectools.dataset import Dataset
from rectools.models.base import FixedColdRecoModelMixin, ModelBase, ModelConfig

from rankformer.adapters.common import Indices, Scores, described, fitted_model, log_of, new_model, similar_to
from rankformer.models.base import Model
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import TopK

Triplet = tuple[Indices, Indices, Scores]  # targets and items, both as RecTools numbers them, and scores


class RankformerModelConfig(ModelConfig):
    """What a RecTools configuration holds of a model: its name and settings."""

    model: str = "blend"
    settings: dict[str, Any] = Field(default_factory=dict)


class RankformerModel(FixedColdRecoModelMixin, ModelBase[RankformerModelConfig]):
    """A model of this package in RecTools.

    Args:
        model: name of a model, or an instance; one that is fitted recommends without another fit.
        verbose: whether a fit shows its progress.
        **settings: of the model.
    """

    recommends_for_cold = True
    config_class = RankformerModelConfig

    def __init__(self, model: str | Model = "blend", verbose: int = 0, **settings: Any) -> None:
        super().__init__(verbose=verbose)
        self.source, self.settings = model, settings
        self.model = fitted_model(model, settings) or new_model(model, settings)
        self.is_fitted = self.model.is_fitted

    def _get_config(self) -> RankformerModelConfig:
        return RankformerModelConfig(cls=type(self), verbose=self.verbose, **described(self.source, self.settings))

    @classmethod
    def _from_config(cls, config: RankformerModelConfig) -> "RankformerModel":
        return cls(config.model, config.verbose, **config.settings)

    def _fit(self, dataset: Dataset) -> None:
        matrix = dataset.get_user_item_matrix(include_weights=True)
        users, items = dataset.user_id_map.external_ids, dataset.item_id_map.external_ids
        log = log_of(matrix, users[: matrix.shape[0]], items[: matrix.shape[1]])
        self.model = new_model(self.source, self.settings).fit(log, verbose=bool(self.verbose))

    def _recommend_u2i(
        self, user_ids: Indices, dataset: Dataset, k: int, filter_viewed: bool, sorted_item_ids_to_recommend: Any
    ) -> Triplet:
        recommender, numbers = self.model.recommender, self._numbers(dataset)
        users = recommender.user_ids.index_of(dataset.user_id_map.convert_to_external(user_ids))
        matrix = dataset.get_user_item_matrix(include_weights=False)[user_ids].tocoo()
        items = self._items(dataset)[matrix.col]
        options = self._options(dataset, k, sorted_item_ids_to_recommend, include_seen=not filter_viewed)
        known = (users >= 0)[matrix.row] & (items >= 0)
        sizes = len(recommender.user_ids), len(recommender.item_ids)
        seen = SeenItems.from_pairs(users[matrix.row[known]], items[known], *sizes)
        found = [_flat(user_ids[users >= 0], recommender.rank(users[users >= 0].tolist(), options, seen=seen), numbers)]
        for row in np.flatnonzero(users < 0):  # whom the model does not know, by what the dataset says of them
            history = items[(matrix.row == row) & (items >= 0)]
            if recommender.can_fold_in:
                lists, _ = recommender.rank_histories([history.tolist()], options)
            else:
                lists = recommender.rank(
                    [-1], replace(options, block=tuple(history.tolist()) if filter_viewed else None)
                )
            found.append(_flat(user_ids[[row]], lists, numbers))
        joined: tuple[Indices, Indices, Scores] = self._concat_reco(found)
        return joined

    def _get_cold_reco(self, dataset: Dataset, k: int, sorted_item_ids_to_recommend: Any) -> tuple[Indices, Scores]:
        lists = self.model.recommender.rank([-1], self._options(dataset, k, sorted_item_ids_to_recommend))
        return _flat(np.zeros(1, dtype=np.int64), lists, self._numbers(dataset))[1:]

    def _recommend_i2i(
        self, target_ids: Indices, dataset: Dataset, k: int, sorted_item_ids_to_recommend: Any
    ) -> Triplet:
        options = self._options(dataset, k, sorted_item_ids_to_recommend)
        ours = self._items(dataset)
        found = [similar_to(self.model.recommender, int(ours[item]), options) for item in target_ids if ours[item] >= 0]
        known = target_ids[ours[target_ids] >= 0]
        targets = np.repeat(known, [len(items) for items, _ in found])
        items, scores = (np.concatenate([each[part] for each in found] or [np.zeros(0, int)]) for part in (0, 1))
        return targets, self._numbers(dataset)[items], scores

    def _options(self, dataset: Dataset, k: int, allowed: Any, include_seen: bool = True) -> RankingOptions:
        ours = self._items(dataset) if allowed is None else self._items(dataset)[allowed]
        every = allowed is None and (np.sort(ours) == np.arange(len(self.model.recommender.item_ids))).all()
        allow = None if every else tuple(ours[ours >= 0].tolist())
        return RankingOptions(k, include_seen, allow)

    def _items(self, dataset: Dataset) -> Indices:
        """Return the model's index of each item of the dataset, -1 where it has none."""
        return self.model.recommender.item_ids.index_of(dataset.item_id_map.external_ids)

    def _numbers(self, dataset: Dataset) -> Indices:
        """Return the dataset's number of each item of the model."""
        ours = self._items(dataset)
        numbers = np.full(len(self.model.recommender.item_ids), -1)
        numbers[ours[ours >= 0]] = np.flatnonzero(ours >= 0)
        return numbers


def _flat(targets: Indices, lists: TopK, numbers: Indices) -> Triplet:
    """Return lists (b, k) for b targets, one after another."""
    items, scores = lists.items.numpy(), lists.scores.float().numpy()
    rows, _ = np.nonzero(items >= 0)
    return targets[rows], numbers[items[items >= 0]], scores[items >= 0]
