"""EASE against its closed form, whole and cut."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.models import ease
from rankformer.models.ease import EASE
from rankformer.scoring.dual_weights import DualWeights
from rankformer.scoring.item_matrix import DenseWeights, SparseWeights

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(40, 23, 200, repeats=30)
WIDE = repeated_log(23, 40, 200, repeats=30)  # fewer users than items: the dual form
REGULARIZATION = 3.0


def closed_form(log, count=False):
    x = np.zeros((log.num_users, log.num_items))
    np.add.at(x, (log.users, log.items), 1)
    x = x if count else (x > 0).astype(float)
    inverse = np.linalg.inv(x.T @ x + REGULARIZATION * np.eye(x.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return x, weights


def stored(model):
    matrix = model.recommender.scorer.matrix
    return np.stack([matrix.column(item) for item in range(matrix.num_items)], axis=1)


def scores(model):
    return model.recommender.scorer.scores(torch.arange(model.recommender.scorer.num_users)).numpy()


@pytest.mark.parametrize("duplicates", ["once", "count"])
@pytest.mark.parametrize("keep", [None, 64])
@pytest.mark.parametrize("log", [LOG, WIDE], ids=["more users", "more items"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float64", 2e-7)])
@pytest.mark.parametrize("rows", [5, 512])
def test_all_weights_are_those_of_the_closed_form(monkeypatch, log, duplicates, keep, precision, tolerance, rows):
    monkeypatch.setattr(ease, "_ROWS_AT_ONCE", rows)  # the triangles are mirrored block by block
    model = EASE(regularization=REGULARIZATION, keep=keep, precision=precision, duplicates=duplicates).fit(log)
    x, weights = closed_form(log, duplicates == "count")
    assert isinstance(model.recommender.scorer.matrix, DualWeights if log is WIDE else DenseWeights)
    np.testing.assert_allclose(stored(model), weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(scores(model), x @ weights, rtol=0, atol=20 * tolerance)


def test_the_weights_minimise_the_loss_among_those_with_a_zero_diagonal():
    """The gradient of |X - X B|^2 + lambda |B|^2 is 0 wherever B is free."""
    x, _ = closed_form(LOG)
    weights = stored(EASE(regularization=REGULARIZATION, keep=None, precision="float64").fit(LOG))
    gradient = x.T @ (x @ weights - x) + REGULARIZATION * weights
    free = ~np.eye(23, dtype=bool)
    assert np.abs(gradient[free]).max() < 1e-5
    assert not np.diag(weights).any()


@pytest.mark.parametrize("log", [LOG, WIDE], ids=["more users", "more items"])
def test_only_the_largest_weights_of_each_column_are_kept_whatever_their_sign(log):
    model = EASE(regularization=REGULARIZATION, keep=4).fit(log)
    assert isinstance(model.recommender.scorer.matrix, SparseWeights)
    x, weights = closed_form(log)
    for item in range(log.num_items):
        small = np.argsort(-np.abs(weights[:, item]), kind="stable")[4:]
        weights[small, item] = 0
    np.testing.assert_allclose(stored(model), weights, rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores(model), x @ weights, rtol=0, atol=1e-4)
    assert (weights < 0).any()


@pytest.mark.parametrize(("keep", "kind"), [(12, SparseWeights), (14, DualWeights), (None, DualWeights)])
def test_few_users_store_a_matrix_of_users_where_that_is_smaller(keep, kind):
    """23^2 numbers are more than 12 for each of 40 items, and fewer than 14; the scores are those of all weights."""
    model = EASE(regularization=REGULARIZATION, keep=keep).fit(WIDE)
    assert type(model.recommender.scorer.matrix) is kind
    x, weights = closed_form(WIDE)
    assert np.allclose(scores(model), x @ weights, rtol=0, atol=1e-5) == (kind is DualWeights)


def test_items_without_interactions_have_no_weights():
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 3)]
    users, items = np.array(pairs).T
    for keep in (2, None):
        model = EASE(regularization=1.0, keep=keep).fit(Interactions.from_indices(users, items, 3, 5))
        found = stored(model)
        assert found[0, 1] > 0.5
        assert not np.delete(np.delete(found, [0, 1], 0), [0, 1], 1).any()


def test_more_memory_than_allowed_is_refused_before_it_is_taken():
    log = Interactions.from_indices([0], [0], 50_000, 50_000)
    with pytest.raises(ConfigError, match=r"50000 x 50000 numbers, which takes 10\.0 GB, and memory_limit=8;"):
        EASE().fit(log)
    with pytest.raises(ConfigError, match=r"takes 20\.0 GB"):
        EASE(precision="float64").fit(log)
    with pytest.raises(ConfigError, match=r"takes 20\.0 GB"):
        EASE(keep=None).fit(log)


def test_a_matrix_that_cannot_be_inverted_says_what_to_do():
    log = Interactions.from_indices(np.repeat(np.arange(2000), 2), np.tile([0, 1], 2000), 2000, 2)
    with pytest.raises(ConfigError, match=r"regularization=1e-30: .*larger regularization, or precision=float64"):
        EASE(regularization=1e-30).fit(log)
