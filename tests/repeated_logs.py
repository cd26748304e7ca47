"""Small invented logs with the oddities of real ones."""

import numpy as np

from rankformer.data.interactions import Interactions


def repeated_log(n, m, size, repeats=0, seed=0):
    """Random distinct pairs, some of them repeated; the last user and the last item have none."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice((n - 1) * (m - 1), size, replace=False)
    pairs = np.concatenate([pairs, rng.choice(pairs, repeats)])
    return Interactions.from_indices(pairs // (m - 1), pairs % (m - 1), n, m)


def weighted_and_repeated(n=15, m=12, size=60, most=4, seed=0):
    """A log with integer weights, and one that has each interaction as often as its weight says."""
    pairs = np.random.default_rng(seed).choice((n - 1) * (m - 1), size, replace=False)
    times = np.random.default_rng(seed + 1).integers(1, most + 1, size)
    users, items = pairs // (m - 1), pairs % (m - 1)
    weighted = Interactions.from_indices(users, items, n, m, weights=times.astype(np.float32))
    return weighted, Interactions.from_indices(np.repeat(users, times), np.repeat(items, times), n, m)
