"""`Settings`: the base of every group of settings, a frozen value that rejects what it does not know."""

import difflib
import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from rankformer.errors import ConfigError

# The largest integers that can be meant, by the end of a name; and about the largest 32-bit float.
_MOST = {"layers": 64, "layer": 64, "order": 64, "_dim": 2**16, "heads": 2**10, "features": 2**16, "": 2**31 - 1}
_MOST_FLOAT = 3.4e38
_SHOWN = 80  # characters of a wrong value that an error repeats


class Settings(BaseModel):
    """A frozen group of settings; a wrong or unknown one raises a ConfigError of one line.

    A subclass changes inherited defaults without restating the fields: `class Mine(Base, defaults={"epochs": 10})`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def __init_subclass__(cls, defaults: Mapping[str, Any] | None = None, **options: Any) -> None:
        del defaults  # handled below, once pydantic has collected the fields
        super().__init_subclass__(**options)

    @classmethod
    def __pydantic_init_subclass__(cls, defaults: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if defaults:
            for name, value in defaults.items():
                cls.model_fields[name].default = value
            cls.model_rebuild(force=True)

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as problem:
            raise _as_config_error(type(self), problem) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Return the settings in a dictionary, or raise a ConfigError."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as problem:
            raise _as_config_error(cls, problem) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Return the settings in a JSON string, or raise a ConfigError."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as problem:
            raise _as_config_error(cls, problem) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed, checked like new ones."""
        return type(self)(**{**self.model_dump(), **changes})


class ModelSettings(Settings):
    """What every model can be given besides its hyperparameters."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides every random draw."""
    device: str = Field(default="cpu", max_length=40)
    """Where to compute: cpu, cuda, or auto for CUDA where there is one."""

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        for name in self.hyperparameter_fields():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            most = _MOST_FLOAT if isinstance(value, float) else next(_MOST[end] for end in _MOST if name.endswith(end))
            if abs(value) > most:
                raise ConfigError(f"{name}={_cut(repr(value))}: input should be at most {most:g}")
        return self

    def likely_cause(self) -> str:
        """Return which hyperparameter is furthest from its default, as advice where numbers are not finite."""
        ratios: dict[str, float] = {}
        for name, field in self.hyperparameter_fields().items():
            value, usual = getattr(self, name), field.default
            if isinstance(value, float) and isinstance(usual, int | float) and value != usual:
                ratios[name] = abs(math.log(max(abs(value), 1e-45) / max(abs(usual), 1e-6)))
        name = max(ratios, key=lambda name: ratios[name], default="")
        if ratios.get(name, 0.0) < math.log(10):
            name = "learning_rate" if hasattr(self, "learning_rate") else name
        if not name:
            return "check the weights of the interactions"
        usual = type(self).model_fields[name].default
        advice = f"try a smaller {name}" if getattr(self, name) >= usual else f"try a larger {name}"
        return f"{advice} than {getattr(self, name)}" + (f" (default {usual})" if name in ratios else "")

    @classmethod
    def hyperparameter_fields(cls) -> dict[str, FieldInfo]:
        """Return the fields that are hyperparameters: all but the seed and the device."""
        return {name: field for name, field in cls.model_fields.items() if name not in ModelSettings.model_fields}

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of the hyperparameters, as JSON can hold them."""
        return self.model_dump(mode="json", include=set(self.hyperparameter_fields()))


class TunedSettings(ModelSettings):
    """What a method has that searches the few settings that matter (`Model.ladder`) by itself."""

    tune: bool = True
    """Whether to search the few settings that matter on the validation part; those that are given stay as they are."""


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as 90s, 2m, 1.5h or 30d; a bare number is seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1)
    try:
        return float(number) * unit
    except ValueError:
        raise ConfigError(f"{text!r} is not a duration; write for example 90s, 2m, 1h or 30d") from None


def _as_config_error(owner: type[Settings], problem: ValidationError) -> ConfigError:
    first = problem.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    name = ".".join(str(step) for step in first["loc"])
    known = list(owner.model_fields)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known settings are {', '.join(known)}"
        return ConfigError(f"unknown setting {name[:80]!r}; {hint}")
    if first["type"] == "missing":
        return ConfigError(f"setting {name!r} is missing; give it a value")
    expected = first["msg"][:1].lower() + first["msg"][1:]
    prefix = f"{name}={_cut(repr(first['input']))}: " if name else ""
    return ConfigError(f"{prefix}{expected}")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
