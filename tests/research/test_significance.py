import numpy as np
import pytest
from scipy import stats

from rankformer.errors import DataError
from rankformer.research.significance import paired_test


@pytest.mark.parametrize("lead", [0.0, 0.01, -0.05, 0.3])
@pytest.mark.parametrize("users", [2, 7, 4000])
def test_it_is_scipys_paired_t_test(lead, users):
    rng = np.random.default_rng(users)
    first, second = rng.random(users) + lead, rng.random(users) ** 3
    ours, theirs = paired_test(first, second), stats.ttest_rel(first, second)
    interval = theirs.confidence_interval(0.95)
    assert ours.t == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert (ours.users, ours.difference) == (users, pytest.approx(np.mean(first - second)))


def test_the_order_of_users_matters_since_they_are_paired():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    close = paired_test(base + 0.01 + rng.normal(0, 0.001, 200), base)
    mixed = paired_test(rng.permutation(base) + 0.01, base)
    assert close.p < 1e-50 < 0.05 < mixed.p


def test_equal_methods_do_not_differ():
    same = paired_test(np.ones(5), np.ones(5))
    assert (same.difference, same.t, same.p) == (0.0, 0.0, 1.0)
    assert paired_test(np.ones(5), np.zeros(5)).p == 0.0


def test_other_users_are_refused():
    with pytest.raises(DataError, match="same two or more users"):
        paired_test(np.ones(5), np.ones(6))
    with pytest.raises(DataError, match="same two or more users"):
        paired_test(np.ones(1), np.ones(1))
