"""Ranking quality during training: everything that does not change between epochs is built once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.evaluation.evaluator import measure, rank
from rankformer.evaluation.ground_truth import GroundTruth
from rankformer.evaluation.metrics import Metric, parse_metrics
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import Scorer


@dataclass(frozen=True, eq=False)
class RankingValidator:
    """Calls with embeddings or another scorer, answers with metrics on the validation part.

    Attributes:
        truth: the validation lines of the users that have any.
        seen: the training pairs, left out of the lists.
        popularity: (m,) training lines of each item.
        metrics: what to compute.
    """

    truth: GroundTruth
    seen: SeenItems
    popularity: NDArray[np.int64]
    metrics: tuple[Metric, ...]

    def __call__(self, scorer: Scorer) -> dict[str, float]:
        """Return the mean of each metric over the users with a validation line."""
        longest = max(metric.cutoff for metric in self.metrics)
        outcome, _ = rank(scorer, self.truth, self.seen, self.popularity, longest)
        return {str(metric): float(np.mean(measure(metric, outcome))) for metric in self.metrics}


def make_validator(
    train: Interactions, valid: Interactions, metric: str | Sequence[str] = "ndcg@20"
) -> RankingValidator:
    """Return a function from a scorer such as `Embeddings` to the metrics on `valid`; no list holds a pair of `train`.

    It gives what `evaluate(..., mask="train")` gives on the same parts.

    Args:
        train: the part the embeddings are learnt from, over the same id maps.
        valid: the part to be found.
        metric: one name such as "ndcg@20", or several.

    Raises:
        DataError: the validation part is empty.
        ConfigError: a metric is unknown.
    """
    return RankingValidator(
        truth=GroundTruth.of(valid, train.user_ids, train.item_ids),
        seen=SeenItems.of(train),
        popularity=np.bincount(train.items, minlength=train.num_items),
        metrics=parse_metrics(metric),
    )
