"""Which rows of a log to keep: repeated pairs merged, and the k-core. Plain arrays in, plain arrays out."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class MergedRows(NamedTuple):
    """The distinct pairs of a log: the row each is first seen on, its latest time and its summed weight."""

    rows: NDArray[np.int64]
    times: NDArray[Any] | None
    weights: NDArray[np.float32] | None


def pair_codes(users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return one integer per row, equal for equal pairs and ordered by user, then item."""
    width = np.int64(items.max(initial=0)) + 1
    codes: NDArray[np.int64] = users.astype(np.int64) * width + items
    return codes


def merge_rows(
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    times: NDArray[Any] | None,
    weights: NDArray[np.float32] | None,
) -> MergedRows:
    """Return the distinct pairs in order of first appearance, each with its latest time and the sum of its weights."""
    _codes, first, group = np.unique(pair_codes(users, items), return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(first)
    latest, summed = None, None
    if times is not None:
        latest = times[first]
        np.maximum.at(latest, group, times)
        latest = latest[order]
    if weights is not None:
        # Summed in float64 and rounded once, so that the result does not depend on how numpy groups the additions.
        summed = np.bincount(group, weights=weights, minlength=len(first)).astype(np.float32)[order]
    return MergedRows(first[order], latest, summed)


def k_core_rows(users: NDArray[np.int32], items: NDArray[np.int32], k: int) -> NDArray[np.bool_]:
    """Return a mask of the rows in the k-core.

    That is the largest part of the log in which each user has at least k distinct items and each item k distinct users.
    Dropping an item may leave a user short and so on, so both sides are pruned until nothing changes.
    """
    _codes, first, group = np.unique(pair_codes(users, items), return_index=True, return_inverse=True)
    alive = np.arange(len(first))
    while True:
        user, item = users[first[alive]], items[first[alive]]
        enough = (np.bincount(user)[user] >= k) & (np.bincount(item)[item] >= k) if len(alive) else np.empty(0, bool)
        if enough.all():
            break
        alive = alive[enough]
    kept = np.zeros(len(first), dtype=bool)
    kept[alive] = True
    mask: NDArray[np.bool_] = kept[group.reshape(-1)]
    return mask
