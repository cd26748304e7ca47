"""Quick tuning: what is tried, in which order, and what comes out, for a value that is known in advance."""

from typing import ClassVar

import pytest
from pydantic import Field

from rankformer.models.base import Model
from rankformer.models.quick_search import quick_search
from rankformer.models.registry import MODELS
from rankformer.settings import ModelSettings


class Settings(ModelSettings):
    width: int = 2
    depth: int = 1
    rate: float = Field(default=0.5, gt=0)
    epochs: int = 40


class Stepwise(Model):
    """A method without a cheaper fit."""

    name = "stepwise"
    settings_class = Settings
    ladder: ClassVar = {"width": (1, 2, 4), "depth": (1, 3)}

    def learn(self, graph, context):
        raise NotImplementedError


class Halving(Stepwise):
    """A method that is cheaper with fewer epochs."""

    fidelity = "epochs"


def search(method, value_of, **fixed):
    """The settings found, and all that were tried, in order."""
    tried = []

    def follow(changes):
        tried.append(changes)
        return value_of(**{"width": 2, "depth": 1, "epochs": 40, **fixed, **changes})

    return quick_search(method, fixed, follow), tried


def test_without_a_cheaper_fit_one_setting_after_the_other():
    found, tried = search(Stepwise, lambda width, depth, epochs: width + 10 * depth)
    assert tried == [{}, {"width": 1}, {"width": 4}, {"width": 4, "depth": 3}]
    assert found == {"width": 4, "depth": 3}


def test_the_defaults_stay_where_nothing_is_better():
    for method in (Stepwise, Halving):
        found, tried = search(method, lambda width, depth, epochs: 0.5)
        assert found == {}
        assert {} in tried


def test_halving_tries_everything_at_a_quarter_and_the_best_quarter_in_full():
    found, tried = search(Halving, lambda width, depth, epochs: width + 10 * depth)
    short, full = tried[:6], tried[6:]
    combinations = [(2, 1), (1, 1), (2, 3), (1, 3), (4, 3), (4, 1)]  # the defaults, then the nearest to the best so far
    assert [{"width": 2, "depth": 1, **changes} for changes in short] == [
        {"width": width, "depth": depth, "epochs": 10} for width, depth in combinations
    ]
    assert full == [{"width": 4, "depth": 3}, {"depth": 3}, {}]  # the best quarter, and the defaults
    assert found == {"width": 4, "depth": 3}


def test_nothing_is_tried_beyond_what_is_clearly_worse_in_the_same_direction():
    class Long(Halving):
        ladder: ClassVar = {"width": (1, 2, 4, 8, 16), "depth": (1, 3, 5)}

    def peak(width, depth, epochs, ridge=False):
        rungs = (1, 2, 4, 8, 16).index(width), (1, 3, 5).index(depth)
        return (
            1 - 0.2 * abs(rungs[0] - 1) - 0.2 * abs(rungs[1]) if not ridge else 1 - 0.2 * abs(rungs[0] - 1 - rungs[1])
        )

    _, tried = search(Long, peak)
    assert [changes for changes in tried if "epochs" in changes] == [
        {"epochs": 10},
        {"width": 1, "epochs": 10},
        {"depth": 3, "epochs": 10},
        {"width": 4, "epochs": 10},  # and neither width 8 nor 16, nor depth 5
        {"width": 1, "depth": 3, "epochs": 10},  # both at once is a direction of its own
        {"width": 4, "depth": 3, "epochs": 10},
    ]
    _, tried = search(Long, lambda **settings: peak(**settings, ridge=True) + settings["depth"] / 100)
    assert {"width": 8, "depth": 5} in tried, "uphill along the ridge, where each setting alone is worse"


def test_what_makes_a_fit_dearer_is_tried_with_the_best_before_the_rest_of_the_best_quarter():
    class Late(Halving):
        late_ladder: ClassVar = {"rate": (0.9, 0.1)}

    found, tried = search(Late, lambda width, depth, epochs, rate=0.5: width + 10 * depth + 5 * rate)
    best = {"width": 4, "depth": 3}
    assert tried[6:] == [best, {**best, "rate": 0.9}, {**best, "rate": 0.1}, {"depth": 3}, {}]
    assert found == {**best, "rate": 0.9}
    assert search(Late, lambda width, depth, epochs, rate: width, rate=0.2)[0] == {"width": 4}


def test_a_dearer_rung_is_tried_only_where_the_one_before_brought_enough():
    class Late(Halving):
        late_ladder: ClassVar = {"rate": (1.0, 2.0, 4.0)}

    def value_of(width, depth, epochs, rate=0.5):
        return 10 + depth + min(rate, 2.0) / 2

    found, tried = search(Late, value_of)
    assert [changes["rate"] for changes in tried if "rate" in changes] == [1.0]  # 1.9 % more
    assert found == {"depth": 3, "rate": 1.0}
    _, tried = search(Late, lambda **settings: value_of(**settings) - 10)
    assert [changes["rate"] for changes in tried if "rate" in changes] == [1.0, 2.0, 4.0]


def test_what_time_allows_is_spent_near_the_best():
    left = 4

    def value_of(width, depth, epochs):
        nonlocal left
        left -= 1
        return width + 10 * depth if epochs == 40 or left >= 0 else None

    found, tried = search(Halving, value_of)
    assert found == {"depth": 3}  # found by four short fits, of which it was the third
    assert {"width": 4, "depth": 3} not in tried


def test_only_whole_fits_can_win():
    def deceptive(width, depth, epochs):
        return 100.0 * width if epochs == 10 else -width

    assert search(Halving, deceptive)[0] == {}


def test_the_defaults_are_not_fitted_twice():
    _, tried = search(Halving, lambda width, depth, epochs: -abs(width - 2) - depth)
    assert tried.count({}) == 1


@pytest.mark.parametrize("method", [Stepwise, Halving])
def test_what_fails_is_left_out_and_the_search_continues(method):
    def failing(width, depth, epochs):
        return None if width == 4 else width + 10 * depth

    assert search(method, failing)[0] == {"depth": 3}


@pytest.mark.parametrize("method", [Stepwise, Halving])
def test_when_nothing_is_measured_the_defaults_are_the_answer(method):
    assert search(method, lambda width, depth, epochs: None)[0] == {}


@pytest.mark.parametrize("method", [Stepwise, Halving])
def test_without_time_after_the_defaults_they_are_the_answer(method):
    values = iter([0.1])
    assert search(method, lambda width, depth, epochs: next(values, None))[0] == {}


@pytest.mark.parametrize("method", [Stepwise, Halving])
def test_a_fixed_setting_is_not_searched(method):
    found, tried = search(method, lambda width, depth, epochs: width + 10 * depth, width=3)
    assert not any("width" in changes for changes in tried)
    assert found == {"depth": 3}
    assert search(method, lambda width, depth, epochs: 1.0, width=1, depth=1) == ({}, [{}])


def test_with_a_fixed_fidelity_every_fit_is_whole():
    found, tried = search(Halving, lambda width, depth, epochs: width + 10 * depth, epochs=7)
    assert tried == [{}, {"width": 1}, {"width": 4}, {"width": 4, "depth": 3}]
    assert found == {"width": 4, "depth": 3}


@pytest.mark.parametrize("name", MODELS)
def test_ladders_name_settings_with_values_that_they_may_have(name):
    method = MODELS[name]
    assert bool(method.ladder) == (method.name not in ("blend", "popularity"))
    assert all(len(set(values)) > 1 for values in method.ladder.values())
    for setting, values in {**method.ladder, **method.late_ladder}.items():
        for value in values:
            assert getattr(method.settings_class(**{setting: value}), setting) == value
    if method.ladder and method.fidelity is not None:
        assert method.settings_class.model_fields[method.fidelity].default >= 4
