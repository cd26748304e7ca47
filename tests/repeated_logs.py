"""Small invented logs with the oddities of real ones."""

import numpy as np

from rankformer.data.interactions import Interactions


def repeated_log(n, m, size, repeats=0, seed=0):
    """Random distinct pairs, some of them repeated; the last user and the last item have none."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice((n - 1) * (m - 1), size, replace=False)
    pairs = np.concatenate([pairs, rng.choice(pairs, repeats)])
    return Interactions.from_indices(pairs // (m - 1), pairs % (m - 1), n, m)
