import pytest

from rankformer.research.summary import Row, chance, difference, number, seconds, shown, spread_of
from rankformer.research.trained import pack


def test_means_and_deviations_are_over_seeds():
    spread = spread_of([0.1, 0.2, 0.3])
    assert (spread.mean, spread.deviation) == (pytest.approx(0.2), pytest.approx(0.1))
    assert str(spread) == "0.2000 ± 0.1000"
    assert str(spread_of([0.25])) == "0.2500"
    assert spread_of([]) is None


def test_numbers_as_texts():
    assert difference(spread_of([0.066]), 0.06) == "+0.0060 (+10.0%)"
    assert difference(None, 0.06) == difference(spread_of([0.1]), None) == "-"
    assert (number(None), number(0.5), shown(None)) == ("-", "0.5000", "-")
    assert [seconds(value) for value in (None, 0.0312, 4.26, 42.3, 1234.5)] == ["-", "0.031", "4.3", "42.3", "1234"]
    assert (chance(0.04), chance(1e-9)) == ("0.040", "1.0e-09")


def test_users_are_averaged_over_seeds_and_runs_without_metrics_left_out():
    import numpy as np

    def result(value, users):
        return {"metrics": {"ndcg@20": value}, "per_user": {"ndcg@20": pack(np.array(users))}, "failed": None}

    broken = {"metrics": None, "per_user": {}, "failed": "step 3: the loss is not finite"}
    row = Row((0, 1, 2), (result(0.5, [1.0, 0.0]), result(0.25, [0.5, 0.0]), broken))
    assert row.metric("ndcg@20").values == (0.5, 0.25)
    assert list(row.per_user("ndcg@20")) == [0.75, 0.0]
    assert row.failures == ["step 3: the loss is not finite"]
    assert Row((), ()).per_user("ndcg@20") is None
    assert "per_user" not in row.to_dict()["runs"][0]
