"""A numbering of users and items that puts those who meet next to each other, found by label propagation.

A step reads the embeddings of each user's items, one user after another. Numbered by clusters, users that follow each
other read the same items, which may then still be in the cache where the tables outgrow it; nothing else changes. Label
propagation is by Raghavan, Albert and Kumara, Physical Review E 2007:

    label of a user = the label that most of its items have; label of an item = the label that most of its users have

from labels of their own, a few times. Items of very many users have no vote: nearly every label would be theirs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.int64]
_ITERATIONS = 4
_MOST_POPULAR = 0.01  # share of the items that do not vote
_LOW = (1 << 32) - 1


def clustered_order(
    users: NDArray[Any], items: NDArray[Any], num_users: int, num_items: int, iterations: int = _ITERATIONS
) -> tuple[Order, Order]:
    """Return the users and the items in an order by cluster; within one, those of most interactions come first."""
    popularity = np.bincount(items, minlength=num_items)
    votes = popularity <= np.quantile(popularity, 1 - _MOST_POPULAR)
    chosen = votes[items]
    voting_users, voting_items = users[chosen], items[chosen]
    # Numbers in no order, so that the least of them, which ties go to, favours no item: users of the same items agree.
    item_labels = np.random.Generator(np.random.PCG64(0)).permutation(num_items)
    user_labels = np.zeros(num_users, dtype=np.int64)
    for _ in range(iterations):
        user_labels = _most_frequent(voting_users, item_labels[voting_items], num_users, num_items)
        item_labels = _most_frequent(items, user_labels[users], num_items, num_items)
    degrees = np.bincount(users, minlength=num_users)
    return np.lexsort((-degrees, user_labels)), np.lexsort((-popularity, item_labels))


def _most_frequent(groups: NDArray[Any], labels: Order, num_groups: int, num_labels: int) -> Order:
    """Return the label that occurs most in each group, the least of several; without any, one after all others."""
    found = np.full(num_groups, num_labels, dtype=np.int64)
    if not len(groups):
        return found
    keys = groups.astype(np.int64) * (num_labels + 1) + labels
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(np.append(starts, len(keys)))
    group, label = np.divmod(keys[starts], num_labels + 1)
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    best = np.maximum.reduceat((counts << 32) + (_LOW - label), first)
    found[group[first]] = _LOW - (best & _LOW)
    return found
