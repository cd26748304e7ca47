"""Ranking quality during training: everything that does not change between epochs is built once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.evaluation.evaluator import measure, rank
from rankformer.evaluation.ground_truth import GroundTruth
from rankformer.evaluation.metrics import Metric, parse_metrics
from rankformer.scoring.base import Scorer
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.seen_items import SeenItems


@dataclass(frozen=True, eq=False)
class RankingValidator:
    """Called with a scorer, returns its metrics on the validation part.

    Attributes:
        train: the training part.
        truth: the validation interactions of the users that have any.
        seen: the training interactions, left out of the lists.
        popularity: (m,) training interactions of each item.
        metrics: what to compute.
    """

    train: Interactions
    truth: GroundTruth
    seen: SeenItems
    popularity: NDArray[np.int64]
    metrics: tuple[Metric, ...]

    def __call__(self, scorer: Scorer) -> dict[str, float]:
        """Return the mean of each metric over the users with a validation interaction."""
        longest = max(metric.cutoff for metric in self.metrics)
        recommender = Recommender(scorer, self.train.user_ids, self.train.item_ids, self.train)
        outcome, _ = rank(recommender, self.truth, self.seen, self.popularity, longest)
        return {str(metric): float(np.mean(measure(metric, outcome))) for metric in self.metrics}


def make_validator(
    train: Interactions, valid: Interactions, metric: str | Sequence[str] = "ndcg@20"
) -> RankingValidator:
    """Return a function from a scorer to the metrics on `valid`; no list holds an interaction of `train`.

    It gives what `evaluate(..., mask="train")` gives on the same parts.

    Args:
        train: the part the scorer is learned from, over the same id maps.
        valid: the part to be found.
        metric: one name such as "ndcg@20", or several.

    Raises:
        DataError: the validation part is empty.
        ConfigError: a metric is unknown.
    """
    return RankingValidator(
        train=train,
        truth=GroundTruth.of(valid, train.user_ids, train.item_ids),
        seen=SeenItems.of(train),
        popularity=np.bincount(train.items, minlength=train.num_items),
        metrics=parse_metrics(metric),
    )
