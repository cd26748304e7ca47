from dataclasses import replace

import numpy as np
import pytest

from rankformer.data.interactions import Interactions
from rankformer.models.registry import model_class
from rankformer.tuning.objective import Objective, TuningData
from rankformer.tuning.space import make_space

TINY = {"epochs": 8, "validate_every": 1, "embedding_dim": 4, "metric": "ndcg@5"}


@pytest.fixture(autouse=True)
def _small_steps(one_thread):
    """The logs here are too small to share out."""


@pytest.fixture(scope="session")
def parts():
    """A log of 30 users and 20 items in two tastes with some noise, in three parts."""
    random = np.random.default_rng(5)
    users, items = np.divmod(np.arange(600), 20)
    alike = (users % 2) == (items % 2)
    chosen = random.random(600) < np.where(alike, 0.6, 0.05)
    return Interactions.from_indices(users[chosen], items[chosen], 30, 20).split(parts=(0.6, 0.2, 0.2))


@pytest.fixture(scope="session")
def data(parts):
    return TuningData("tastes", parts.fingerprint, parts.train, parts.valid)


@pytest.fixture
def objective(data, tmp_path):
    return Objective(model_class("mf"), data, TINY, seed=3, folder=tmp_path / "study")


@pytest.fixture(scope="session")
def space():
    """Two settings of mf, wide enough for good and bad trials."""
    ranges = {"learning_rate": {"low": 1e-4, "high": 1.0, "log": True}, "l2": {"low": 0.0, "high": 0.1}}
    return make_space(model_class("mf"), ranges, "a test")


@pytest.fixture
def plain():
    """Returns trials as values without what the clock decides."""
    return lambda trials: [replace(trial, seconds=0.0) for trial in trials]
