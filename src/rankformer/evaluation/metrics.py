"""Ranking metrics as pure functions, each with its formula.

Letters used below, for one user and a list of length K:

    hit_r      1 if the item at rank r (from 1) is in the user's test part, else 0; a missing item is 0
    count      number of test interactions of the user, duplicates counted each time
    distinct   number of distinct test items of the user

The paper normalises by count, most libraries by distinct items; without duplicates the two agree. Per-user
functions take `hits` (users, K) and give one float64 per user.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rankformer.errors import ConfigError
from rankformer.scoring.seen_items import SeenItems

Hits = NDArray[np.bool_]
Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def ndcg(hits: Hits, counts: Counts) -> Values:
    """Return sum_r hit_r / log2(r + 1), divided by the same sum with hits at the first min(K, count) ranks."""
    discounts = 1.0 / np.log2(np.arange(2, hits.shape[1] + 2))  # (K,)
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])[np.minimum(counts, hits.shape[1])]
    # Not `hits @ discounts`: a matrix product rounds by row position, and a user's value must not depend on others.
    return _ratio(np.where(hits, discounts, 0.0).sum(1), ideal)


def recall(hits: Hits, distinct: Counts) -> Values:
    """Return sum_r hit_r / distinct."""
    return _ratio(hits.sum(1), distinct)


def recall_capped(hits: Hits, counts: Counts) -> Values:
    """Return sum_r hit_r / min(K, count), the paper's recall."""
    return _ratio(hits.sum(1), np.minimum(counts, hits.shape[1]))


def precision(hits: Hits) -> Values:
    """Return sum_r hit_r / K; a list with missing items is still divided by K."""
    return _ratio(hits.sum(1), np.full(len(hits), hits.shape[1]))


def hit_rate(hits: Hits) -> Values:
    """Return 1 if any hit_r is 1, else 0."""
    return np.asarray(hits.any(1), dtype=np.float64)


def mrr(hits: Hits) -> Values:
    """Return 1 / (rank of the first hit), 0 without a hit in the list."""
    return _ratio(hit_rate(hits), hits.argmax(1) + 1)


def average_precision(hits: Hits, distinct: Counts) -> Values:
    """Return sum_r hit_r * (hits up to r) / r, divided by min(K, distinct): a perfect list scores 1 at every K.

    The trec_eval family divides by distinct instead; the two agree wherever distinct <= K.
    """
    ranks = np.arange(1, hits.shape[1] + 1)
    found = np.cumsum(hits, axis=1)
    return _ratio((hits * found / ranks).sum(1), np.minimum(distinct, hits.shape[1]))


def coverage(lists: NDArray[np.int64], num_items: int) -> float:
    """Return the fraction of the catalogue that is in at least one list; missing items are -1."""
    return float(np.count_nonzero(_times_listed(lists, num_items))) / max(num_items, 1)


def novelty(lists: NDArray[np.int64], popularity: Counts) -> float:
    """Return the mean over all listed items of -log2(interactions of the item / of all items) in the training part.

    An item without a training interaction is taken to have one, so that the value stays finite; empty lists give 0.
    """
    listed = lists[lists >= 0]
    if not listed.size:
        return 0.0
    fraction = np.maximum(popularity, 1) / max(int(popularity.sum()), 1)
    return float(-np.log2(fraction)[listed].mean())


def gini(lists: NDArray[np.int64], num_items: int) -> float:
    """Return how unevenly the lists fall on the catalogue: 0 all items equally often, towards 1 one item takes all.

    With x_1 <= ... <= x_m how often each item is listed: sum_j (2 j - m - 1) x_j / (m sum_j x_j).
    """
    times = np.sort(_times_listed(lists, num_items))
    if not times.sum():
        return 0.0
    weights = 2.0 * np.arange(1, num_items + 1) - num_items - 1
    return float(weights @ times / (num_items * times.sum()))


def diversity(lists: NDArray[np.int64], trained: SeenItems) -> float:
    """Return the mean over lists of 1 - the mean cosine between two of its items, 0 without a list of two items.

    An item is the set of users who have it in the training part. With unit vectors x_i and a list of K items,
    sum_{i != j} x_i . x_j = |sum_i x_i|^2 - sum_i |x_i|^2.
    """
    shape = trained.num_users, trained.num_items
    users = csr_array((np.ones(len(trained)), trained.items, trained.offsets), shape=shape)
    degree = np.bincount(trained.items, minlength=trained.num_items)
    units = csr_array((users * (1 / np.sqrt(np.maximum(degree, 1)))[None, :]).T)  # (m, n)
    sizes = (lists >= 0).sum(1)
    alike = []
    for start in range(0, len(lists), 1024):
        block = lists[start : start + 1024]
        rows, positions = np.nonzero(block >= 0)
        listed = csr_array((np.ones(len(rows)), (rows, block[rows, positions])), shape=(len(block), shape[1]))
        alike.append((listed @ units).power(2).sum(1) - listed @ (degree > 0))
    several = sizes > 1
    return float(np.mean(1 - np.concatenate(alike)[several] / (sizes * (sizes - 1))[several])) if several.any() else 0.0


@dataclass(frozen=True)
class Outcome:
    """Everything a metric may look at, for lists of the longest cutoff."""

    hits: Hits  # (U, K) whether the item at each rank is in the user's test part
    lists: NDArray[np.int64]  # (U, K) item indices, -1 for a missing item
    counts: Counts  # (U,) test interactions of each user
    distinct: Counts  # (U,) distinct test items of each user
    popularity: Counts  # (m,) training interactions of each item

    def at(self, cutoff: int) -> "Outcome":
        """Return the same outcome with the lists cut to the first `cutoff` items."""
        return replace(self, hits=self.hits[:, :cutoff], lists=self.lists[:, :cutoff])


PER_USER: dict[str, Callable[[Outcome], Values]] = {
    "ndcg": lambda outcome: ndcg(outcome.hits, outcome.counts),
    "recall": lambda outcome: recall(outcome.hits, outcome.distinct),
    "recall_capped": lambda outcome: recall_capped(outcome.hits, outcome.counts),
    "precision": lambda outcome: precision(outcome.hits),
    "hit_rate": lambda outcome: hit_rate(outcome.hits),
    "mrr": lambda outcome: mrr(outcome.hits),
    "map": lambda outcome: average_precision(outcome.hits, outcome.distinct),
}
OVER_LISTS: dict[str, Callable[[Outcome], float]] = {
    "coverage": lambda outcome: coverage(outcome.lists, len(outcome.popularity)),
    "novelty": lambda outcome: novelty(outcome.lists, outcome.popularity),
    "gini": lambda outcome: gini(outcome.lists, len(outcome.popularity)),
}
METRICS: dict[str, Callable[[Outcome], Values | float]] = {**PER_USER, **OVER_LISTS}


@dataclass(frozen=True)
class Metric:
    """A metric and where the lists are cut; written `name@cutoff`."""

    name: str
    cutoff: int

    def __str__(self) -> str:
        return f"{self.name}@{self.cutoff}"


MOST_ITEMS = 10_000  # largest cutoff


def parse_metrics(names: str | Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics that strings such as "ndcg@20" stand for, duplicates left out.

    Args:
        names: several strings, or one with commas: "ndcg@20,recall@10".

    Raises:
        ConfigError: a metric is unknown, its cutoff is not an integer from 1, or none is given.
    """
    strings = names.split(",") if isinstance(names, str) else names
    metrics = tuple(dict.fromkeys(_parse_metric(text) for text in strings))
    if not metrics:
        raise ConfigError("no metric was given; name at least one, for example ndcg@20")
    return metrics


def _parse_metric(text: str) -> Metric:
    name, _, cutoff = text.strip().partition("@")
    if name not in METRICS:
        raise ConfigError(f"unknown metric {text[:80]!r}; known are {', '.join(METRICS)}, as in ndcg@20")
    if not (cutoff.isascii() and cutoff.isdecimal() and len(cutoff) < 10 and 1 <= int(cutoff) <= MOST_ITEMS):
        raise ConfigError(f"metric {text[:80]!r} needs a cutoff that is an integer from 1, as in {name}@20")
    return Metric(name, int(cutoff))


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Values:
    """Return numerator / denominator, 0 where the denominator is 0 (a user without a test interaction)."""
    result = np.zeros(len(numerator), dtype=np.float64)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def _times_listed(lists: NDArray[np.int64], num_items: int) -> NDArray[np.int64]:
    return np.bincount(lists[lists >= 0], minlength=num_items)
