"""Smaller logs of the same shape, to measure on."""

import numpy as np
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions

Sample = tuple[Interactions, Interactions]  # training and validation interactions over the same ids


def smaller(train: Interactions, valid: Interactions, size: int, seed: int = 0) -> Sample:
    """Return about `size` training interactions that look like the log, and the validation interactions that go along.

    A share of the users keep all their interactions; items are ranked by popularity and neighbours in that order become
    one, so many that interactions per item stay as they were. Both degree distributions survive, and interactions,
    users and items shrink by the same factor. A log that is no larger is returned as it is.
    """
    if len(train) <= size:
        return train, valid
    share = size / len(train)
    num_users, num_items = max(2, round(train.num_users * share)), max(2, round(train.num_items * share))
    chosen = np.random.default_rng(seed).permutation(train.num_users)[:num_users]
    user_of = np.full(train.num_users, -1, dtype=np.int32)
    user_of[chosen] = np.arange(num_users, dtype=np.int32)
    item_of = _rank_by_count(train) * num_items // train.num_items

    def mapped(log: Interactions) -> Interactions:
        rows = user_of[log.users] >= 0
        weights = None if log.weights is None else log.weights[rows]
        users, items = user_of[log.users[rows]], item_of[log.items[rows]]
        return Interactions.from_indices(
            users, items, num_users, num_items, weights=weights, name=f"{log.name}, smaller"
        )

    return mapped(train), mapped(valid)


def _rank_by_count(log: Interactions) -> NDArray[np.int64]:
    """Return the position of each item, (m,), when they are ordered by how often they occur."""
    rank = np.empty(log.num_items, dtype=np.int64)
    rank[np.argsort(np.bincount(log.items, minlength=log.num_items), kind="stable")] = np.arange(log.num_items)
    return rank
