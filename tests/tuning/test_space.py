from typing import Literal

import pytest
from optuna.distributions import CategoricalDistribution as Choices
from optuna.distributions import FloatDistribution as Range
from optuna.distributions import IntDistribution
from pydantic import Field

from rankformer.errors import ConfigError
from rankformer.models.popularity import Popularity
from rankformer.models.registry import MODELS, model_class
from rankformer.settings import ModelSettings
from rankformer.tuning.space import NOT_SEARCHED, contains, make_space, read_space, space_of, to_json


class ToySettings(ModelSettings):
    strength: float = Field(default=0.5, gt=0)
    share: float = Field(default=0.3, ge=0, le=1)
    steps: int = Field(default=4, ge=3, le=6)
    kind: Literal["a", "b"] = "a"
    single: Literal["only"] = "only"
    flag: bool = False
    epochs: int = 5
    limit: int | None = None
    note: str = "x"


class Toy(Popularity):
    name = "toy"
    settings_class = ToySettings


@pytest.mark.parametrize("name", MODELS)
def test_every_method_has_a_space_that_its_settings_allow(name):
    method = model_class(name)
    space = space_of(method)
    assert bool(space) == (name != "popularity")
    assert not NOT_SEARCHED & space.keys()
    for setting, dimension in space.items():
        values = dimension.choices if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        for value in values:
            method(**{setting: value})


def test_what_a_model_declares_is_searched():
    declared = [method for method in MODELS.values() if method.search_space]
    assert len(declared) >= len(MODELS) - 1
    for method in declared:
        assert method.search_space.keys() <= space_of(method).keys()


def test_the_learning_rate_is_searched_around_the_models_own():
    assert space_of(model_class("rankformer"))["learning_rate"] == Range(0.01, 1.0, log=True)
    assert space_of(model_class("xsimgcl"))["learning_rate"] == Range(3e-4, 0.03, log=True)
    assert space_of(model_class("mgformer"))["l2"] == Range(1e-6, 1e-2, log=True)  # its default is 0


def test_a_model_without_a_space_gets_what_its_settings_suggest():
    assert space_of(Toy) == {
        "strength": Range(0.05, 5.0, log=True),
        "share": Range(0.05, 0.95),
        "steps": IntDistribution(3, 6),
        "kind": Choices(("a", "b")),
        "flag": Choices((True, False)),
    }


def test_integers_stay_integers():
    space = make_space(Toy, {"steps": {"low": 3, "high": 6}, "strength": {"low": 1, "high": 2}}, "here")
    assert isinstance(space["steps"], IntDistribution)
    assert isinstance(space["strength"], Range)
    assert isinstance(space["strength"].low, float)


def test_what_is_inside():
    assert contains(IntDistribution(1, 3), 3)
    assert not contains(Range(0.5, 2.0), 2.1)
    assert not contains(Range(0.5, 2.0), None)
    assert contains(Choices((1, "a")), 1)
    assert not contains(Choices((1, "a")), True)


def test_a_file(tmp_path):
    (tmp_path / "space.toml").write_text(
        'kind = ["b", "a"]\n[strength]\nlow = 0.1\nhigh = 10\nlog = true\n', encoding="utf-8"
    )
    space = read_space(tmp_path / "space.toml", Toy)
    assert space == {"kind": Choices(("b", "a")), "strength": Range(0.1, 10.0, log=True)}
    assert to_json(space) == {
        "kind": ["b", "a"],
        "strength": {"low": 0.1, "high": 10.0, "log": True},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no setting"),
        ("x = ", "is not TOML"),
        ("strenght = {low = 1, high = 2}", "toy has no setting 'strenght'; did you mean 'strength'?"),
        ("strength = {low = 1, hihg = 2}", "unknown key 'hihg'; did you mean 'high'?"),
        ("strength = {low = 1}", "with low; it needs both low and high"),
        ("strength = {}", "with nothing; it needs both"),
        ("strength = {low = 2, high = 2}", "from 2.0 to 2.0; low must be below high"),
        ("strength = {low = -1, high = 2}", "has the value -1: input should be greater than 0"),
        ("strength = {low = 1, high = inf}", "expected a finite number"),
        ('strength = {low = "1", high = 2}', "has the value '1': input should be a valid number"),
        ("strength = {low = 1, high = 2, log = 1}", "log = 1; expected true or false"),
        ("share = {low = 0, high = 1, log = true}", "must start above 0"),
        ("steps = {low = 3.5, high = 6}", "has the value 3.5"),
        ("kind = {low = 1, high = 2}", "give a list of choices"),
        ('kind = ["a", "c"]', "has the value 'c': input should be 'a' or 'b'"),
        ('kind = ["a"]', "at least two"),
        ('kind = ["a", "a"]', "each named once"),
        ("strength = 3", "use --set"),
        ('metric = ["ndcg@5", "ndcg@20"]', "--set metric"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "space.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_space(path, Toy)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        read_space(tmp_path / "none.toml", Toy)
