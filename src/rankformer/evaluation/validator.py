"""Ranking quality during training: everything that does not change between epochs is built once."""

from collections.abc import Callable, Sequence

import numpy as np

from rankformer.data.interactions import Interactions
from rankformer.evaluation.blend_weights import choose_weights
from rankformer.evaluation.evaluator import GroundTruth, item_counts, measure, ranked, ranks_of
from rankformer.evaluation.metrics import parse_metrics
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import Weighed
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.seen_items import SeenItems


def make_validator(
    train: Interactions, valid: Interactions, metric: str | Sequence[str] = "ndcg@20", most_users: int | None = None
) -> Callable[[Scorer], dict[str, float]]:
    """Return a function from a scorer to the metrics on `valid`; no list holds an interaction of `train`.

    It gives what `evaluate(..., mask="train")` gives on the same parts, or on so many of their users, always the same.

    Args:
        train: the part the scorer is learned from, over the same id maps.
        valid: the part to be found.
        metric: one name such as "ndcg@20", or several.
        most_users: how many users of `valid` are looked at, a random sample; all by default.

    Raises:
        DataError: the validation part is empty.
        ConfigError: a metric is unknown.
    """
    wanted, users, ranks = parse_metrics(metric), np.unique(valid.users), ranks_of(train)
    first, total = ranks.before(len(users))
    if most_users is not None and total > most_users:
        sample = np.random.default_rng(0).choice(total, most_users, replace=False) - first
        users = users[sample[(sample >= 0) & (sample < len(users))]]  # those of this rank
        valid = valid.rows(np.flatnonzero(np.isin(valid.users, users)))
    truth = GroundTruth.of(valid, train.user_ids, train.item_ids)
    seen, popularity = SeenItems.of(train), item_counts(train)
    weighted = item_counts(train, train.weights)

    def validate(scorer: Scorer) -> dict[str, float]:
        recommender = Recommender(scorer, train.user_ids, train.item_ids, train, item_counts=weighted)
        lists, _ = ranked(recommender, truth.users, seen, max(metric.cutoff for metric in wanted))
        values = measure(lists, truth, popularity, wanted, ranks)
        return {name: float(np.mean(value)) for name, value in values.items()}

    return validate


def make_weigher(train: Interactions, valid: Interactions, seed: int) -> Callable[[Sequence[Scorer]], Weighed]:
    """Return the function `choose_weights` of a list of scorers on these parts."""

    def weigh(scorers: Sequence[Scorer]) -> Weighed:
        truth = GroundTruth.of(valid, train.user_ids, train.item_ids)
        return choose_weights([scorer.cpu() for scorer in scorers], truth, SeenItems.of(train), seed, ranks_of(train))

    return weigh
