"""Quick tuning: the few settings of a method that matter, by successive halving on the validation part.

Each method names these settings with a short ladder of values (`Model.ladder`) and what makes a fit cheaper
(`Model.fidelity`: the number of epochs or iterations). All combinations are fitted at a quarter of the full fidelity,
those nearest to the defaults first, and the best quarter of them at full fidelity; a method without a cheaper fit
varies one setting after the other instead. What makes a fit dearer comes last (`Model.late_ladder`). The defaults
always take part at full fidelity, so that the result is never worse than they are. `rankformer tune --budget` and the
blend search this way. (Jamieson and Talwalkar, "Non-stochastic Best Arm Identification", AISTATS 2016.)
"""

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from rankformer.models.base import Model

FRACTION = 4  # of the full fidelity in the first round
SURVIVORS = 4  # one in so many enters the second

Try = Callable[[dict[str, Any]], float | None]  # the value of settings on the validation part; None: failed, or no time


def quick_search(method: type[Model], fixed: Mapping[str, Any], value_of: Try) -> dict[str, Any]:
    """Return the best settings found, as changes of the fixed ones.

    Args:
        method: the model class.
        fixed: settings that stay as they are; a setting among them is not searched.
        value_of: fits with the fixed settings and these changes, and returns the metric; called with the defaults
            first. None means that nothing was measured; the search continues with what it has.
    """
    tried: dict[str, tuple[float, dict[str, Any]]] = {}

    def measured(changes: dict[str, Any]) -> float:
        value = value_of(changes)
        value = -math.inf if value is None else value
        tried[repr(sorted(changes.items()))] = value, changes
        return value

    measured({})
    ladder = {name: values for name, values in method.ladder.items() if name not in fixed}
    if not ladder:
        return {}
    if method.fidelity is None or method.fidelity in fixed:
        best: dict[str, Any] = {}
        for name, values in ladder.items():
            options = [{**best, name: value} for value in values if value != _default(method, name)]
            best = max([best, *options], key=lambda changes: _known(tried, changes, measured))
    else:
        low = {method.fidelity: cheaper(_default(method, method.fidelity))}
        first = [(value_of({**changes, **low}), changes) for changes in _combinations(method, ladder)]
        ranked = sorted(
            ((value, -at) for at, (value, _) in enumerate(first) if value is not None), reverse=True
        )  # the earlier of equals
        for _, at in ranked[: math.ceil(len(first) / SURVIVORS)]:
            _known(tried, first[-at][1], measured)
    for name, values in method.late_ladder.items():
        best = max(tried.values(), key=lambda each: each[0])[1]
        for value in values if name not in fixed else ():
            _known(tried, {**best, name: value}, measured)
    return max(tried.values(), key=lambda each: each[0])[1]


def cheaper(fidelity: int) -> int:
    """Return the fidelity of the first round."""
    return max(1, fidelity // FRACTION)


def _known(
    tried: Mapping[str, tuple[float, dict[str, Any]]],
    changes: dict[str, Any],
    measured: Callable[[dict[str, Any]], float],
) -> float:
    found = tried.get(repr(sorted(changes.items())))
    return measured(changes) if found is None else found[0]


def _combinations(method: type[Model], ladder: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the ladders' values, as changes of the defaults; the fewest rungs away come first."""
    found = []
    for values in product(*ladder.values()):
        chosen = {name: value for name, value in zip(ladder, values, strict=True) if value != _default(method, name)}
        rungs = [
            abs(_rung(ladder[name], value) - _rung(ladder[name], _default(method, name)))
            for name, value in chosen.items()
        ]
        found.append((sum(rungs), chosen))
    return [chosen for _, chosen in sorted(found, key=lambda each: each[0])]


def _rung(values: Any, value: Any) -> int:
    return list(values).index(value) if value in values else len(values)


def _default(method: type[Model], name: str) -> Any:
    return method.settings_class.model_fields[name].default
