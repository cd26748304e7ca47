import numpy as np
import pytest

from rankformer.evaluation.comparison import p_value
from rankformer.research.published import Score
from rankformer.research.results import pack, unpack
from rankformer.research.statistics import (
    Row,
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
