"""The same training on one rank and on several: losses and embeddings agree to rounding."""

import numpy as np
import pytest
from tests import ranks
from tests.training.ranks_worker import CASES

WORKER = ("-m", "tests.training.ranks_worker")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """A folder of outcomes for each number of ranks."""
    folders = {count: tmp_path_factory.mktemp(f"ranks{count}") for count in (1, 2, 3)}
    for count, folder in folders.items():
        ranks.run(count, *WORKER, str(folder))
    return folders


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_ranks_gives_the_same(outcomes, name, count):
    alone, several = (np.load(outcomes[number] / f"{name}.npz") for number in (1, count))
    assert np.abs(alone["losses"] - several["losses"]).max() <= 1e-6
    for side in ("users", "items"):
        assert alone[side].shape == several[side].shape
        assert np.abs(alone[side] - several[side]).max() <= 1e-5
    if name not in ("ials", "popularity"):
        assert alone["losses"][-1] != alone["losses"][1], "it was trained"
