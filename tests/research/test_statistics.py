import numpy as np
import pytest
from scipy import stats

from rankformer.errors import DataError
from rankformer.research.published import Score
from rankformer.research.results import pack, unpack
from rankformer.research.statistics import (
    Row,
    p_value,
    paired_test,
    score_columns,
    seconds,
    shown,
    spread_of,
)


def test_means_and_deviations_are_over_seeds():
    spread = spread_of([0.1, 0.2, 0.3])
    assert (spread.mean, spread.standard_deviation) == (pytest.approx(0.2), pytest.approx(0.1))
    assert str(spread) == "0.2000±.1000"
    assert str(spread_of([0.25])) == "0.2500"
    assert spread_of([]) is None


def test_numbers_as_strings():
    metrics = {"metrics": {"ndcg@20": 0.066, "recall@20": 0.25}}
    row = Row((0,), (metrics,))
    assert score_columns(row, Score(0.06, 0.2), "recall@20") == ("0.0600", "0.0660", "+10.0%", "0.2000", "0.2500")
    assert score_columns(row, None, "recall@20") == ("-", "0.0660", "-", "-", "0.2500")
    assert score_columns(Row((), ()), Score(0.06, 0.2), "recall@20") == ("0.0600", "-", "-", "0.2000", "-")
    assert shown(None) == "-"
    assert [seconds(value) for value in (None, 0.0312, 4.26, 42.3, 1234.5)] == ["-", "0.031", "4.3", "42.3", "1234"]
    assert (p_value(0.04), p_value(1e-9)) == ("0.040", "1.0e-09")


def test_users_are_averaged_over_seeds_and_runs_without_metrics_left_out():
    def result(value, users):
        return {"metrics": {"ndcg@20": value}, "per_user": {"ndcg@20": pack(np.array(users))}, "failed": None}

    broken = {"metrics": None, "per_user": {}, "failed": "step 3: the loss is not finite"}
    row = Row((0, 1, 2), (result(0.5, [1.0, 0.0]), result(0.25, [0.5, 0.0]), broken))
    assert row.metric("ndcg@20").values == (0.5, 0.25)
    assert list(row.per_user("ndcg@20")) == [0.75, 0.0]
    assert row.failures == ["step 3: the loss is not finite"]
    assert Row((), ()).per_user("ndcg@20") is None
    assert "per_user" not in row.to_dict()["runs"][0]


def test_numbers_of_users_survive_being_text():
    values = np.random.default_rng(0).random(100)
    assert np.abs(unpack(pack(values)) - values).max() < 1e-7
    with pytest.raises(ValueError):
        unpack("not base64!")


@pytest.mark.parametrize("shift", [0.0, 0.01, -0.05, 0.3])
@pytest.mark.parametrize("users", [2, 7, 4000])
def test_it_is_scipys_paired_t_test(shift, users):
    rng = np.random.default_rng(users)
    first, second = rng.random(users) + shift, rng.random(users) ** 3
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
