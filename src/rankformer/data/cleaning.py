"""Duplicates and the k-core, on plain arrays of user and item indices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]


def interaction_codes(users: NDArray[Any], items: Indices, num_items: int) -> NDArray[np.int64]:
    """Return one integer per row, equal for equal interactions and ordered by user, then item."""
    codes: NDArray[np.int64] = users.astype(np.int64) * max(1, num_items) + items
    return codes


def distinct(
    users: Indices, items: Indices, parts: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct interaction, ascending, and for each row its position among them.

    Given the part of each row, interactions are distinct within each part.
    """
    num_users, num_items = (int(index.max(initial=0)) + 1 for index in (users, items))
    owners = users.astype(np.int64) if parts is None else users + parts.astype(np.int64) * num_users
    _, first, groups = np.unique(interaction_codes(owners, items, num_items), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[groups.reshape(-1)]


def k_core_mask(users: Indices, items: Indices, k: int) -> NDArray[np.bool_]:
    """Return which rows are in the k-core.

    That is the largest part of the log in which each user has at least k distinct items and each item k distinct users.
    Dropping an item may leave a user short and so on, so both sides are pruned until nothing changes.
    """
    rows, groups = distinct(users, items)
    kept = np.ones(len(rows), dtype=bool)
    while True:
        user, item = users[rows[kept]], items[rows[kept]]
        enough = (np.bincount(user)[user] >= k) & (np.bincount(item)[item] >= k)
        if enough.all():
            mask: NDArray[np.bool_] = kept[groups]
            return mask
        kept[kept] = enough
