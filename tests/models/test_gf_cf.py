"""GF-CF against its equations in dense matrices."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer.models.gf_cf import GFCF

pytestmark = pytest.mark.usefixtures("one_thread")


def dense(log, factors, weight, count):
    """X and W, multiplied out."""
    x = np.zeros((log.num_users, log.num_items))
    np.add.at(x, (log.users, log.items), 1)
    x = x if count else (x > 0).astype(float)
    users, items = np.maximum(x.sum(1), 1), np.maximum(x.sum(0), 1)
    normalized = x / np.sqrt(users[:, None] * items)
    _, values, right = np.linalg.svd(normalized)
    rank = int((values > 1e-6 * values.max()).sum())
    v = right[: min(factors, rank)].T
    low_pass = np.diag(items**-0.5) @ v @ v.T @ np.diag(items**0.5)
    return x, normalized.T @ normalized + weight * low_pass


@pytest.mark.parametrize("shape", [(30, 18), (18, 30)])
@pytest.mark.parametrize(
    "settings", [{"factors": 4}, {"factors": 4, "low_pass_weight": 2.0, "duplicates": "count"}, {}]
)
def test_scores_and_columns_are_those_of_the_dense_filter(shape, settings):
    log = repeated_log(*shape, 130, repeats=15)
    x, weights = dense(
        log, settings.get("factors", 256), settings.get("low_pass_weight", 0.3), settings.get("duplicates") == "count"
    )
    scorer = GFCF(**settings).fit(log).recommender.scorer
    np.testing.assert_allclose(scorer.scores(torch.arange(shape[0])).numpy(), x @ weights, rtol=1e-4, atol=2e-5)
    columns = np.stack([scorer.matrix.column(item) for item in range(shape[1])], axis=1)
    np.testing.assert_allclose(columns, weights, rtol=0, atol=1e-5)


def test_without_weight_there_is_no_low_pass_filter_to_find():
    log = repeated_log(30, 18, 130)
    scorer = GFCF(low_pass_weight=0).fit(log).recommender.scorer
    x, weights = dense(log, 0, 0.0, False)
    assert scorer.matrix.vectors.shape == (18, 0)
    np.testing.assert_allclose(scorer.scores(torch.arange(30)).numpy(), x @ weights, rtol=1e-5, atol=1e-6)


def test_large_graphs_are_decomposed_by_iteration_to_the_same_filter():
    log = repeated_log(700, 600, 6000)
    x, weights = dense(log, 5, 0.3, False)
    scorer = GFCF(factors=5).fit(log).recommender.scorer
    found = scorer.scores(torch.arange(700)).numpy()
    np.testing.assert_allclose(found, x @ weights, rtol=0, atol=1e-4)
