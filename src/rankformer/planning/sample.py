"""Smaller logs of the same shape, to measure on."""

import numpy as np
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions


def smaller(log: Interactions, num_pairs: int, seed: int = 0) -> Interactions:
    """Return about `num_pairs` pairs that look like the log: the log itself if it has no more.

    A share of the users keep all their pairs; items are ranked by how often they occur and neighbours in that order
    become one, so many that pairs per item stay as they were. Both distributions of degrees survive.
    """
    if len(log) <= num_pairs:
        return log
    share = num_pairs / len(log)
    num_users, num_items = max(2, round(log.num_users * share)), max(2, round(log.num_items * share))
    chosen = np.random.default_rng(seed).permutation(log.num_users)[:num_users]
    place = np.full(log.num_users, -1, dtype=np.int32)
    place[chosen] = np.arange(num_users, dtype=np.int32)
    rows = place[log.users] >= 0
    items = _rank_by_count(log)[log.items[rows]] * num_items // log.num_items
    return Interactions.from_indices(place[log.users[rows]], items, num_users, num_items, name=f"{log.name}, smaller")


def _rank_by_count(log: Interactions) -> NDArray[np.int64]:
    """Return the place of each item, (m,), when they are ordered by how often they occur."""
    rank = np.empty(log.num_items, dtype=np.int64)
    rank[np.argsort(np.bincount(log.items, minlength=log.num_items), kind="stable")] = np.arange(log.num_items)
    return rank


def invented(num_users: int, num_items: int, num_pairs: int, seed: int = 0) -> Interactions:
    """Return random pairs, skewed towards low items, over sizes of one's choice."""
    generator = np.random.default_rng(seed)
    users = generator.integers(0, num_users, num_pairs, dtype=np.int32)
    items = (num_items * generator.random(num_pairs, dtype=np.float32) ** 2).astype(np.int32)
    return Interactions.from_indices(users, np.minimum(items, num_items - 1), num_users, num_items, name="invented")
