"""SLIM: its weights solve the problem, and nothing is lost by visiting few items."""

import numpy as np
import pytest

from rankformer import SLIM, Interactions
from rankformer.models import slim


def log_of(n=60, m=20, size=320, seed=0, repeats=0):
    rng = np.random.default_rng(seed)
    pairs = rng.choice(n * m, size, replace=False)
    pairs = pairs[(pairs % m != 7) & (pairs // m != 3)]  # an item without users, a user without items
    pairs = np.concatenate([pairs, pairs[:repeats]])
    return Interactions.from_indices(pairs // m, pairs % m, n, m)


def weights_of(log, **settings):
    matrix = SLIM(**settings).fit(log).recommender.scorer.matrix
    return np.stack([matrix.column(item) for item in range(log.num_items)], axis=1)


def matrix_of(log, counts=False):
    x = np.zeros((log.num_users, log.num_items))
    np.add.at(x, (log.users, log.items), 1)
    return x if counts else np.minimum(x, 1)


@pytest.mark.parametrize("duplicates", ["once", "count"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 1.0), (0.5, 2.0), (3.0, 20.0)])
def test_no_weight_can_be_moved_by_which_the_objective_falls(l1, l2, duplicates):
    """The conditions of Karush, Kuhn and Tucker, over all weights and not only those of the candidates."""
    log = log_of(repeats=40)
    weights = weights_of(log, l1=l1, l2=l2, candidates=None, iterations=500, duplicates=duplicates)
    x = matrix_of(log, counts=duplicates == "count")
    gradient = x.T @ (x @ weights - x) + l2 * weights + l1
    off = ~np.eye(log.num_items, dtype=bool)
    assert (weights >= 0).all()
    assert (weights[~off] == 0).all()
    assert (weights > 0).any()
    assert np.abs(gradient[off & (weights > 0)]).max() < 0.02  # a weight is known to 1e-4, times its diagonal
    assert gradient[off & (weights == 0)].min() > -0.02


def test_few_candidates_are_the_ones_that_lower_the_objective_most_alone():
    log, l1, l2 = log_of(), 0.5, 2.0
    weights = weights_of(log, l1=l1, l2=l2, candidates=2)
    x = matrix_of(log)
    gram = x.T @ x
    gain = np.maximum(gram - l1, 0) ** 2 / (np.diag(gram)[:, None] + l2)
    np.fill_diagonal(gain, 0)
    for item in range(log.num_items):
        chosen = np.nonzero(weights[:, item])[0]
        assert len(chosen) <= 2
        assert (gain[chosen, item] >= np.sort(gain[:, item])[-2] - 1e-9).all()


def test_batches_and_blocks_change_nothing(monkeypatch):
    log = log_of()
    whole = weights_of(log, l1=0.2, l2=2.0)
    monkeypatch.setattr(slim, "_COLUMNS_AT_ONCE", 3)
    monkeypatch.setattr(slim, "_ROWS_AT_ONCE", 7)
    # Columns that are solved together stop together, so each may differ by what a last pass would change.
    np.testing.assert_allclose(weights_of(log, l1=0.2, l2=2.0), whole, atol=2e-4)


def test_more_l1_leaves_fewer_weights_and_too_much_none():
    log = log_of()
    counts = [np.count_nonzero(weights_of(log, l1=l1, l2=2.0)) for l1 in (0.0, 1.0, 3.0, 100.0)]
    assert counts[0] > counts[1] > counts[2] > counts[3] == 0


def test_many_items_whose_gram_matrix_is_not_held_get_the_same_weights(monkeypatch):
    log = log_of(n=80, m=24, size=500)
    held = weights_of(log, l1=0.5, l2=2.0)
    monkeypatch.setattr(slim, "_MOST_ITEMS", 0)
    assert np.array_equal(weights_of(log, l1=0.5, l2=2.0), held)


def test_an_update_finds_the_weights_of_a_new_fit(monkeypatch):
    whole = log_of(n=80, m=24, size=600)
    old = whole.keep((whole.users < 70) & (whole.items < 21))
    found = SLIM(l1=0.5, l2=2.0).fit(old).updated(whole.keep((whole.users >= 70) | (whole.items >= 21)))
    matrix, log = found.recommender.scorer.matrix, found.recommender.history
    columns = np.stack([matrix.column(item) for item in range(log.num_items)], axis=1)
    expected = weights_of(log, l1=0.5, l2=2.0)
    assert np.abs(columns - expected).max() < 2e-3
    assert np.abs(columns[:20, :20] - weights_of(old, l1=0.5, l2=2.0)[:20, :20]).max() > 0.02, "it moved"
    monkeypatch.setattr(slim, "_SMALLEST_CHANGE", 1e-12)
    again = SLIM(l1=0.5, l2=2.0, iterations=1).fit(log)  # one pass from nothing is not enough
    assert np.abs(again.recommender.scorer.matrix.column(0) - expected[:, 0]).max() > 2e-3
