import numpy as np
import pytest

from rankformer.planning.sample import smaller


def test_a_small_log_is_itself(invented):
    log = invented(30, 20, 100)
    train, valid = smaller(log, log, 100)
    assert train is log
    assert valid is log


def test_a_smaller_log_keeps_the_shape(invented):
    log = invented(6_000, 4_000, 100_000)
    small, valid = smaller(log, log.rows(np.arange(5_000)), 20_000)
    assert len(small) == pytest.approx(20_000, rel=0.05)
    assert len(valid) == pytest.approx(1_000, rel=0.15)
    assert (small.num_users, small.num_items) == (valid.num_users, valid.num_items) == (1200, 800)
    for whole, part in ((log.users, small.users), (log.items, small.items)):
        quantiles = [np.percentile(np.bincount(column), [10, 50, 90, 99]) for column in (whole, part)]
        np.testing.assert_allclose(quantiles[1], quantiles[0], rtol=0.2)


def test_weights_stay_with_their_interactions(invented):
    log = invented(60, 40, 1_000)
    weighted = type(log).from_indices(log.users, log.items, 60, 40, weights=log.items.astype(np.float32))
    small, _ = smaller(weighted, weighted, 500)
    assert len(small.weights) == len(small)
    popular = np.argsort(np.bincount(log.items, minlength=40), kind="stable")
    merged = {int(item): set(np.flatnonzero(np.argsort(popular) * 20 // 40 == item)) for item in range(20)}
    assert all(int(weight) in merged[int(item)] for item, weight in zip(small.items, small.weights, strict=True))
