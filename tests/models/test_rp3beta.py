"""RP3beta against its equations, dense."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer.errors import ConfigError
from rankformer.models.rp3beta import RP3Beta

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(40, 23, 200, repeats=30)


def dense_weights(log, alpha, beta, count):
    x = np.zeros((log.num_users, log.num_items))
    np.add.at(x, (log.users, log.items), 1)
    x = x if count else (x > 0).astype(float)
    d_users, d_items = np.maximum(x.sum(1), 1), np.maximum(x.sum(0), 1)
    to_users, to_items = (x / d_items).T ** alpha, (x / d_users[:, None]) ** alpha
    weights = (to_users * (x.T > 0)) @ (to_items * (x > 0)) / d_items**beta
    np.fill_diagonal(weights, 0)
    return x, weights


def stored(model):
    matrix = model.recommender.scorer.matrix
    return np.stack([matrix.column(item) for item in range(matrix.num_items)], axis=1)


@pytest.mark.parametrize("duplicates", ["once", "count"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.6, 0.4), (1.5, 1.0)])
def test_all_weights_are_those_of_the_equations(alpha, beta, duplicates):
    settings = {"walk_exponent": alpha, "popularity_exponent": beta, "duplicates": duplicates}
    model = RP3Beta(neighbours=23, **settings).fit(LOG)
    x, weights = dense_weights(LOG, alpha, beta, duplicates == "count")
    np.testing.assert_allclose(stored(model), weights, rtol=1e-6, atol=1e-9)
    scores = model.recommender.scorer.scores(torch.arange(LOG.num_users)).numpy()
    np.testing.assert_allclose(scores, x @ weights, rtol=1e-5, atol=1e-7)


def test_each_item_of_a_history_keeps_its_largest_weights():
    model = RP3Beta(neighbours=3).fit(LOG)
    _, weights = dense_weights(LOG, 1.0, 0.4, False)
    for source in range(LOG.num_items):
        small = np.argsort(-weights[source], kind="stable")[3:]
        weights[source, small] = 0
    np.testing.assert_allclose(stored(model), weights, rtol=1e-6, atol=1e-9)


def test_a_larger_exponent_of_popularity_recommends_rarer_items():
    popularity = np.bincount(LOG.items, minlength=LOG.num_items)
    means = [
        popularity[RP3Beta(popularity_exponent=beta).fit(LOG).recommend(k=5).table["item_id"].to_pylist()].mean()
        for beta in (0.0, 1.0)
    ]
    assert means[1] < means[0]


@pytest.mark.parametrize("wrong", [{"neighbours": 0}, {"walk_exponent": 0}, {"popularity_exponent": -1}])
def test_settings_without_a_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RP3Beta(**wrong)
