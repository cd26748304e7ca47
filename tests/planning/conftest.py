import numpy as np
import pytest

from rankformer.data.interactions import Interactions


@pytest.fixture(scope="session")
def invented():
    """Returns random interactions, skewed towards low items, over sizes of one's choice."""

    def make(num_users, num_items, num_interactions, seed=0):
        generator = np.random.default_rng(seed)
        users = generator.integers(0, num_users, num_interactions, dtype=np.int32)
        items = (num_items * generator.random(num_interactions, dtype=np.float32) ** 2).astype(np.int32)
        return Interactions.from_indices(users, np.minimum(items, num_items - 1), num_users, num_items)

    return make
