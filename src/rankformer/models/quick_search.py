"""Quick tuning: the few settings of a method that matter, by successive halving on the validation part.

Each method names these settings with a short ladder of values (`Model.ladder`) and what makes a fit cheaper
(`Model.fidelity`: the number of epochs or iterations). The combinations are fitted at a quarter of the full fidelity,
the one nearest to the best so far next, but with several settings none that is farther from it than a clearly worse one
in the same direction; then, at full fidelity, the best of them, the same with what makes a fit dearer
(`Model.late_ladder`), the rest of the best quarter and the defaults: so that what time allows is spent where it is
worth most, and with enough of it the result is never worse than the defaults. A method without a cheaper fit varies one
setting after the other instead. `rankformer tune --budget` and the blend search this way. (Jamieson and Talwalkar,
"Non-stochastic Best Arm Identification", AISTATS 2016.)
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

from rankformer.models.base import Model

FRACTION = 4  # of the full fidelity in the first round
SURVIVORS = 4  # one in so many enters the second
LEAST_GAIN = 0.03  # of a rung of the late ladder, for the next to be tried
CLEARLY = 0.05  # below the best so far: of several settings what lies beyond is not tried

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

    ladder = {name: values for name, values in method.ladder.items() if name not in fixed}
    if method.fidelity is None or method.fidelity in fixed or not ladder:
        measured({})
        best: dict[str, Any] = {}
        for name, values in ladder.items():
            options = [{**best, name: value} for value in values if value != default_of(method, name)]
            best = max([best, *options], key=lambda changes: _known(tried, changes, measured))
        rest = list[dict[str, Any]]()
    else:
        first = _first_stage(method, ladder, value_of)
        many = math.prod(len(values) for values in ladder.values())
        survivors = [changes for _, changes in first[: math.ceil(many / SURVIVORS)]]
        rest = [*survivors[1:], {}]
        measured(survivors[0] if survivors else {})
    if not ladder:
        return {}
    for name, values in method.late_ladder.items():
        before, best = max(tried.values(), key=lambda each: each[0])
        for value in values if name not in fixed else ():
            found = _known(tried, {**best, name: value}, measured)
            if found < (1 + LEAST_GAIN) * before:  # a dearer one would hardly bring more
                break
            before = found
    for changes in rest:
        _known(tried, changes, measured)
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


def _first_stage(method: type[Model], ladder: Mapping[str, Any], value_of: Try) -> list[tuple[float, dict[str, Any]]]:
    """Return the combinations of the ladders' values that were tried and what each came to at low fidelity, best first.

    Combinations are changes of the defaults, which come first; then the fewest rungs from the best so far.
    """
    assert method.fidelity is not None
    low = {method.fidelity: cheaper(default_of(method, method.fidelity))}
    waiting = [dict(zip(ladder, values, strict=True)) for values in product(*ladder.values())]
    best, found = {name: default_of(method, name) for name in ladder}, list[tuple[float, dict[str, Any]]]()
    while waiting:
        combination = min(waiting, key=partial(_rungs_between, ladder, best))
        waiting.remove(combination)
        highest = max((value for value, _ in found), default=0.0)
        worse = [other for value, other in found if value < (1 - CLEARLY) * highest]
        if len(ladder) > 1 and any(_is_beyond(ladder, best, other, combination) for other in worse):
            continue
        value = value_of({**_changes(method, combination), **low})
        if value is None:
            continue
        if all(value > other for other, _ in found):
            best = combination
        found.append((value, combination))
    ordered = sorted(found, key=lambda each: -each[0])  # the earlier of equals
    return [(value, _changes(method, combination)) for value, combination in ordered]


def _changes(method: type[Model], combination: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in combination.items() if value != default_of(method, name)}


def _is_beyond(ladder: Mapping[str, Any], best: dict[str, Any], worse: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether `other` changes what `worse` changes of the best, in the same directions and no less."""
    pairs = []
    for name, values in ladder.items():
        origin = _rung(values, best[name])
        pairs.append((_rung(values, worse[name]) - origin, _rung(values, other[name]) - origin))
    return all(near * far > 0 and abs(far) >= abs(near) for near, far in pairs if near or far)


def _rungs_between(ladder: Mapping[str, Any], one: dict[str, Any], other: dict[str, Any]) -> int:
    return sum(abs(_rung(values, one[name]) - _rung(values, other[name])) for name, values in ladder.items())


def _rung(values: Any, value: Any) -> int:
    return list(values).index(value) if value in values else len(values)


def default_of(method: type[Model], name: str) -> Any:
    """Return the default of a hyperparameter."""
    return method.settings_class.model_fields[name].default
