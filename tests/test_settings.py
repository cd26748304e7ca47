"""Settings: frozen values that refuse what they do not know, in one line."""

from typing import Literal

import pytest
from pydantic import Field, ValidationError, field_validator

from rankformer.errors import ConfigError
from rankformer.settings import ModelSettings, Settings


class Inner(Settings):
    width: int = 3


class Oven(Settings):
    heat: float = Field(default=180.0, gt=0)
    """Degrees."""
    mode: Literal["fan", "grill"] = "fan"
    """Where the heat comes from."""
    minutes: int
    """How long."""
    inner: Inner = Inner()

    @field_validator("minutes")
    @classmethod
    def _odd_minutes_only(cls, minutes):
        if minutes % 2 == 0:
            raise ConfigError("minutes must be odd")
        return minutes


def test_defaults_and_given_values_are_held():
    oven = Oven(minutes=5, mode="grill")
    assert (oven.heat, oven.mode, oven.minutes, oven.inner.width) == (180.0, "grill", 5, 3)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"minutes": 5, "haet": 3}, "^unknown setting 'haet'; did you mean 'heat'\\?$"),
        ({"minutes": 5, "zzz": 3}, "^unknown setting 'zzz'; known settings are heat, mode, minutes, inner$"),
        ({}, "^setting 'minutes' is missing; give it a value$"),
        ({"minutes": 5, "heat": -1}, "^heat=-1: input should be greater than 0$"),
        ({"minutes": 5, "heat": float("nan")}, "^heat=nan: "),
        ({"minutes": 5, "heat": float("inf")}, "^heat=inf: "),
        ({"minutes": 5, "mode": "steam"}, "^mode='steam': input should be 'fan' or 'grill'$"),
        ({"minutes": 4}, "^minutes must be odd$"),
        ({"minutes": 1.5}, "^minutes=1.5: "),
        ({"minutes": 5, "inner": {"width": "x"}}, "^width='x': "),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_name(given, complaint):
    for make in (lambda: Oven(**given), lambda: Oven.model_validate(given)):
        with pytest.raises(ConfigError, match=complaint) as caught:
            make()
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__


def test_json_is_checked_alike():
    assert Oven.model_validate_json('{"minutes": 7}').minutes == 7
    with pytest.raises(ConfigError, match="haet"):
        Oven.model_validate_json('{"minutes": 7, "haet": 1}')
    with pytest.raises(ConfigError) as caught:
        Oven.model_validate_json("{")
    assert "\n" not in str(caught.value)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(ValidationError, match="frozen"):
        Oven(minutes=5).heat = 3


def test_replace_gives_a_checked_copy():
    oven = Oven(minutes=5)
    assert oven.replace(heat=20).heat == 20
    assert oven.heat == 180
    with pytest.raises(ConfigError, match="heat=-1"):
        oven.replace(heat=-1)
    with pytest.raises(ConfigError, match="did you mean 'heat'"):
        oven.replace(haet=1)


def test_equal_settings_are_equal_and_hash_alike():
    assert Oven(minutes=5) == Oven(minutes=5, heat=180)
    assert len({Oven(minutes=5), Oven(minutes=5), Oven(minutes=7)}) == 2


def test_docstrings_under_fields_become_their_descriptions():
    assert Oven.model_fields["heat"].description == "Degrees."


class Small(ModelSettings):
    width: int = Field(default=3, ge=1)
    """Of the model."""
    kind: Literal["a", "b"] = "a"


class Wide(Small, defaults={"width": 9, "seed": 4}):
    limits: tuple[int, ...] = (1, 2)


class Wider(Wide, defaults={"kind": "b"}):
    pass


def test_a_subclass_changes_inherited_defaults_and_nothing_else():
    assert (Small().width, Wide().width, Wider().width) == (3, 9, 9)
    assert (Small().kind, Wide().kind, Wider().kind) == ("a", "a", "b")
    assert (Small().seed, Wide().seed) == (0, 4)
    assert Wide(width=2).width == 2
    assert Wide.model_fields["width"].description == "Of the model."
    with pytest.raises(ConfigError, match="width=0: input should be greater than or equal to 1"):
        Wider(width=0)


def test_seed_and_device_are_settings_of_every_model_but_no_hyperparameters():
    assert list(Wide.hyperparameter_fields()) == ["width", "kind", "limits"]
    assert Wide(seed=7, device="cuda").hyperparameters() == {"width": 9, "kind": "a", "limits": [1, 2]}
    for seed in (-1, 2**63):
        with pytest.raises(ConfigError, match=f"seed={seed}: "):
            Wide(seed=seed)


class Method(ModelSettings):
    num_layers: int = 3
    hidden_dim: int = 8
    rounds_of: int = 5
    learning_rate: float = 0.1
    l2: float = 0.001
    temperature: float = 0.2


@pytest.mark.parametrize(
    ("name", "value", "most"), [("num_layers", 65, 64), ("hidden_dim", 10**6, 65536), ("rounds_of", 2**31, 2**31 - 1)]
)
def test_integers_that_nobody_means_are_refused(name, value, most):
    with pytest.raises(ConfigError, match=rf"{name}={value}: input should be at most {most:g}".replace("+", r"\+")):
        Method(**{name: value})
    assert getattr(Method(**{name: most}), name) == most


def test_a_wrong_value_is_repeated_only_in_part():
    with pytest.raises(ConfigError) as caught:
        Method(num_layers="9" * 5000)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, "try a smaller learning_rate than 0.1"),
        ({"learning_rate": 5.0}, "try a smaller learning_rate than 5.0 (default 0.1)"),
        ({"l2": 1e37}, "try a smaller l2 than 1e+37 (default 0.001)"),
        ({"learning_rate": 0.2, "temperature": 1e-37}, "try a larger temperature than 1e-37 (default 0.2)"),
        ({"l2": 0.002}, "try a smaller learning_rate than 0.1"),
    ],
)
def test_the_advice_is_about_the_setting_that_is_furthest_from_usual(changes, advice):
    assert Method(**changes).likely_cause() == advice
