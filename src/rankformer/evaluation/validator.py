"""Ranking quality during training: everything that does not change between epochs is built once."""

from collections.abc import Callable, Sequence

import numpy as np

from rankformer.data.interactions import Interactions
from rankformer.evaluation.blend_weights import choose_weights
from rankformer.evaluation.evaluator import GroundTruth, item_counts, measure, ranked, ranks_of
from rankformer.evaluation.metrics import parse_metrics
from rankformer.scoring.base import Scorer
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.seen_items import SeenItems


def make_validator(
    train: Interactions, valid: Interactions, metric: str | Sequence[str] = "ndcg@20"
) -> Callable[[Scorer], dict[str, float]]:
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
    wanted = parse_metrics(metric)
    truth = GroundTruth.of(valid, train.user_ids, train.item_ids)
    seen, popularity, ranks = SeenItems.of(train), item_counts(train), ranks_of(train)
    weighted = item_counts(train, train.weights)

    def validate(scorer: Scorer) -> dict[str, float]:
        recommender = Recommender(scorer, train.user_ids, train.item_ids, train, item_counts=weighted)
        lists, _ = ranked(recommender, truth.users, seen, max(metric.cutoff for metric in wanted))
        values = measure(lists, truth, popularity, wanted, ranks)
        return {name: float(np.mean(value)) for name, value in values.items()}

    return validate


def make_weigher(
    train: Interactions, valid: Interactions, seed: int
) -> Callable[[Sequence[Scorer]], tuple[list[float], list[float]]]:
    """Return the function `choose_weights` of a list of scorers on these parts."""

    def weigh(scorers: Sequence[Scorer]) -> tuple[list[float], list[float]]:
        truth = GroundTruth.of(valid, train.user_ids, train.item_ids)
        return choose_weights([scorer.cpu() for scorer in scorers], truth, SeenItems.of(train), seed, ranks_of(train))

    return weigh
