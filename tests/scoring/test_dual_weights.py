"""EASE's weights by a matrix of users: against the weights multiplied out, and what may be read back."""

import numpy as np
import pytest
import torch

from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.scoring.dual_weights import DualWeights

# User 2 and item 3 have nothing; user 1 has item 1 twice.
INTERACTIONS = interaction_matrix(np.array([0, 0, 1, 1, 1]), np.array([0, 2, 2, 1, 1]), (3, 4), count_duplicates=True)
X = INTERACTIONS.toarray().astype(np.float64)
INVERSE = np.linalg.inv(X @ X.T + 0.5 * np.eye(3))
SCALE = 1 / (1 - np.diag(X.T @ INVERSE @ X))
WEIGHTS = SCALE * (X.T @ INVERSE @ X) * (1 - np.eye(4))


def matrix_of(inverse=INVERSE, scale=SCALE):
    return DualWeights(INTERACTIONS, torch.from_numpy(inverse).float(), torch.from_numpy(scale).float())


def test_the_weights_are_those_of_the_regression_of_each_item_on_the_others():
    for item in range(4):
        others = np.delete(X, item, axis=1)
        expected = np.linalg.solve(others.T @ others + 0.5 * np.eye(3), others.T @ X[:, item])
        np.testing.assert_allclose(np.delete(WEIGHTS[:, item], item), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("histories", [X, [[0, 3, 0, 0], [0, 0, 0, 2]], np.zeros((0, 4))])
def test_products_are_those_of_the_weights_for_training_and_new_users(histories):
    rows = np.array(histories, dtype=np.float32)
    at = rows.nonzero()
    sparse = interaction_matrix(*at, rows.shape, count_duplicates=True, weights=rows[at])
    found = matrix_of().product(sparse)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, rows @ WEIGHTS, rtol=0, atol=1e-5)


def test_columns_have_no_weight_of_an_item_for_itself_or_of_one_without_interactions():
    found = np.stack([matrix_of().column(item) for item in range(4)], axis=1)
    np.testing.assert_allclose(found, WEIGHTS, rtol=0, atol=1e-6)
    assert not np.diag(found).any()
    assert not found[3].any()
    assert not found[:, 3].any()


def test_it_survives_its_tensors():
    matrix = matrix_of()
    again = DualWeights.restore(matrix.tensors(), matrix.metadata(), INTERACTIONS)
    assert np.array_equal(again.product(INTERACTIONS), matrix.product(INTERACTIONS))


@pytest.mark.parametrize(
    ("inverse", "scale", "message"),
    [
        (torch.zeros(2, 2), torch.ones(4), r"inverse has shape \(2, 2\); expected \(3, 3\)"),
        (torch.zeros(3, 3), torch.ones(3), r"scale has shape \(3,\); expected \(4,\)"),
        (torch.full((3, 3), float("nan")), torch.ones(4), "finite"),
        (torch.zeros(3, 3).double(), torch.ones(4), "type float32"),
    ],
)
def test_what_does_not_fit_is_rejected(inverse, scale, message):
    with pytest.raises(DataError, match=message):
        DualWeights.restore({"inverse": inverse, "scale": scale}, {}, INTERACTIONS)
