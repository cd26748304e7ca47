"""What is searched: ranges and choices for the settings of a model, each checked against its settings class.

A model's `search_space` and a file for `--space` are written alike:

    setting = {low = 0.01, high = 1.0, log = true}      # a range; log where factors matter more than differences
    setting = ["normal", "spectral"]                    # one of these

`learning_rate` and `l2` are searched for every model that has them, around its own defaults, unless its space says
otherwise. What decides the cost of a trial (epochs, dimensions, batches) or the protocol (metric, patience) is searched
only if a file names it: a longer training or a larger model would win without being a better setting.
"""

import difflib
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rankformer.errors import ConfigError
from rankformer.models.base import Model
from rankformer.models.quick_search import cheaper
from rankformer.runs.configuration import read_toml
from rankformer.settings import ModelSettings

Value = bool | int | float | str

# Cost and protocol: left at what the user or the model says.
_PROTOCOL = {"epochs", "schedule", "batch_size", "clip_norm", "validate_every", "patience", "metric", "activations"}
NOT_SEARCHED = _PROTOCOL | {"embedding_dim", "hidden_dim", "decoder_dim", "output_dim", "exponent"}


Dimension = CategoricalDistribution | FloatDistribution | IntDistribution
Space = dict[str, Dimension]


def contains(dimension: Dimension, value: Any) -> bool:
    """Whether a value is one of the choices (true is not 1), or lies in the range."""
    if isinstance(dimension, CategoricalDistribution):
        return any(type(value) is type(choice) and value == choice for choice in dimension.choices)
    return isinstance(value, int | float) and bool(dimension.low <= value <= dimension.high)


def to_json(space: Space) -> dict[str, Any]:
    """Return a space as a file for `--space` has it."""
    return {
        name: list(each.choices)
        if isinstance(each, CategoricalDistribution)
        else {"low": each.low, "high": each.high, "log": each.log}
        for name, each in space.items()
    }


def space_of(method: type[Model]) -> Space:
    """Return what is searched for a model by default: its own space, or what its settings class suggests."""
    own = method.search_space or _suggested(method.settings_class)
    return make_space(
        method, {**own, **_around_defaults(method.settings_class), **method.search_space}, "the built-in space"
    )


def ladder_of(method: type[Model], fixed: Collection[str] = ()) -> Space:
    """Return what quick tuning searches, its `fidelity` included; nothing without a ladder, or where all is fixed."""
    if method.ladder.keys() <= set(fixed):
        return {}
    values = {name: list(each) for name, each in {**method.ladder, **method.late_ladder}.items()}
    if method.fidelity is not None:
        values[method.fidelity] = [cheaper(method.settings_class.model_fields[method.fidelity].default)]
    values = {name: each for name, each in values.items() if name not in fixed}
    for name, each in values.items():
        default = method.settings_class.model_fields[name].default
        values[name] = each if default in each else [*each, default]
    return make_space(method, values, "the built-in ladder")


def read_space(path: Path, method: type[Model]) -> Space:
    """Return the search space in a TOML file, every name and value of it checked."""
    described = read_toml(path)
    if not described:
        raise ConfigError(f"{path} names no setting; write lines such as learning_rate = {{low = 0.01, high = 1.0}}")
    return make_space(method, described, str(path))


def make_space(method: type[Model], described: Mapping[str, Any], origin: str) -> Space:
    """Return the space that a table describes.

    Args:
        method: the model whose settings are meant.
        described: a range or a list of choices for each setting.
        origin: where the table comes from, for error messages.

    Raises:
        ConfigError: a setting or key is unknown, or a value is none that the setting may have.
    """
    fields = method.settings_class.hyperparameter_fields()
    if "metric" in described:
        raise ConfigError(f"{origin}: trials are compared by the metric, so it cannot vary; use --set metric=NAME")
    for name in described:
        if name not in fields:
            raise ConfigError(f"{origin}: {method.name} has no setting {name!r}; {_hint(name, list(fields))}")
    return {name: _dimension(f"{origin}: {name}", each, fields[name]) for name, each in described.items()}


def _dimension(where: str, described: Any, field: FieldInfo) -> Dimension:
    if isinstance(described, list):
        values = [_checked(where, value, field) for value in described]
        if len({(type(value), value) for value in values}) < max(2, len(values)):
            raise ConfigError(f"{where} has the choices {described!r}; expected at least two, each named once")
        return CategoricalDistribution(values)
    if isinstance(described, dict):
        return _range(where, described, field)
    raise ConfigError(
        f"{where} is {described!r}; expected a range {{low = .., high = ..}} or a list of choices "
        "(to fix a setting, use --set)"
    )


def _range(where: str, described: dict[str, Any], field: FieldInfo) -> Dimension:
    known = ["low", "high", "log"]
    for key in described:
        if key not in known:
            raise ConfigError(f"{where} has an unknown key {key!r}; {_hint(key, known)}")
    if not {"low", "high"} <= described.keys():
        raise ConfigError(f"{where} is a range with {', '.join(described) or 'nothing'}; it needs both low and high")
    kind = _number_type(field)
    if kind is None:
        raise ConfigError(f"{where} is not a number, so it has no range; give a list of choices")
    log = described.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"{where} has log = {log!r}; expected true or false")
    low, high = (kind(_checked(where, described[end], field)) for end in ("low", "high"))
    if not low < high:
        raise ConfigError(f"{where} goes from {low} to {high}; low must be below high")
    if log and low <= 0:
        raise ConfigError(f"{where} starts at {low}; a range with log = true must start above 0")
    return IntDistribution(int(low), int(high), log) if kind is int else FloatDistribution(low, high, log)


def _checked(where: str, value: Any, field: FieldInfo) -> Value:
    """Return a value that the setting may have, by its own type and bounds; combinations are checked later."""
    rules: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    allowed: TypeAdapter[Value] = TypeAdapter(rules)
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{where} has the value {value}; expected a finite number")
        return allowed.validate_python(value, strict=True)
    except ValidationError as problem:
        message = problem.errors(include_url=False)[0]["msg"]
        raise ConfigError(f"{where} has the value {value!r}: {message[:1].lower()}{message[1:]}") from None


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def _number_type(field: FieldInfo) -> type[int] | type[float] | None:
    union = get_origin(field.annotation) in (Union, UnionType)
    kinds = set(get_args(field.annotation)) - {NoneType, str} if union else {field.annotation}
    return int if kinds == {int} else float if kinds == {float} else None


def _around_defaults(settings: type[ModelSettings]) -> dict[str, Any]:
    """Return the ranges of what nearly every model has: a decade around its learning rate, two around its l2."""
    described: dict[str, Any] = {}
    for name, factor, otherwise in (("learning_rate", 10, 1e-2), ("l2", 100, 1e-4)):
        if name in settings.model_fields:
            default = settings.model_fields[name].default
            middle = getattr(settings, "usual_l2", otherwise) if isinstance(default, str) else default or otherwise
            described[name] = {"low": _tidy(middle / factor), "high": _tidy(middle * factor), "log": True}
    return described


def _suggested(settings: type[ModelSettings]) -> dict[str, Any]:
    """Return what types, bounds and defaults suggest, for a model that declares no space."""
    fields = settings.hyperparameter_fields().items()
    found = {name: _suggestion(field) for name, field in fields if name not in NOT_SEARCHED}
    return {name: each for name, each in found.items() if each is not None}


def _suggestion(field: FieldInfo) -> Any:
    if field.annotation is bool:
        return [True, False]
    if get_origin(field.annotation) is Literal:
        values = list(get_args(field.annotation))
        return values if len(values) > 1 else None
    kind, default = _number_type(field), field.default
    if kind is None or not isinstance(default, int | float) or default <= 0:
        return None
    lowest, highest = _bounds(field)
    if kind is int:
        low, high = max(default // 2, lowest, 1), min(default * 2, highest)
        return {"low": int(low), "high": int(high)} if low < high else None
    if math.isfinite(lowest) and math.isfinite(highest):
        return {"low": lowest + 0.05 * (highest - lowest), "high": highest - 0.05 * (highest - lowest)}
    return {"low": max(_tidy(default / 10), lowest), "high": min(_tidy(default * 10), highest), "log": True}


def _bounds(field: FieldInfo) -> tuple[float, float]:
    low, high = -math.inf, math.inf
    for rule in field.metadata:
        low = max(low, getattr(rule, "ge", low), getattr(rule, "gt", low))
        high = min(high, getattr(rule, "le", high), getattr(rule, "lt", high))
    return low, high


def _tidy(number: float) -> float:
    return float(f"{number:.3g}")
