"""Small invented logs that several tests share."""

import numpy as np

from rankformer.data.interactions import Interactions


def random_log(n=15, m=12, size=60, seed=0):
    """Distinct pairs of n users and m items, drawn at random."""
    pairs = np.random.default_rng(seed).choice(n * m, size, replace=False)
    return Interactions.from_indices(pairs // m, pairs % m, n, m)
