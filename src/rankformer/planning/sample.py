"""Smaller logs of the same shape, to measure on."""

import numpy as np

from rankformer.data.interactions import Interactions


def smaller(train: Interactions, valid: Interactions, size: int, seed: int = 0) -> tuple[Interactions, Interactions]:
    """Return about `size` training interactions that look like the log, and the validation interactions of their users.

    A part of the users keep all their interactions; items are ranked by popularity and neighbours in that order become
    one, so many that interactions per item stay as they were. Both degree distributions survive, and interactions,
    users and items shrink by the same factor. A log that is no larger is returned as it is.
    """
    if len(train) <= size:
        return train, valid
    fraction = size / len(train)
    num_users, num_items = max(2, round(train.num_users * fraction)), max(2, round(train.num_items * fraction))
    user_of = np.full(train.num_users, -1, dtype=np.int32)
    user_of[np.random.default_rng(seed).permutation(train.num_users)[:num_users]] = np.arange(num_users)
    by_popularity = np.argsort(np.bincount(train.items, minlength=train.num_items), kind="stable")
    item_of = np.empty(train.num_items, dtype=np.int64)
    item_of[by_popularity] = np.arange(train.num_items) * num_items // train.num_items

    def mapped(log: Interactions) -> Interactions:
        kept = log.rows(user_of[log.users] >= 0)
        users, items = user_of[kept.users], item_of[kept.items]
        return Interactions.from_indices(users, items, num_users, num_items, weights=kept.confidence, name=log.name)

    return mapped(train), mapped(valid)
