"""The search strategy: which settings to try next (optuna's TPE), and which trainings are not worth continuing.

Both are pure functions of the trials so far: the sampler is made anew for each trial from (seed, number), and told all
trials. So a search that was killed and resumed ends as it would have ended, and nothing of optuna's own storages, one
of which unpickles, is ever written or read.
"""

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState, create_trial

from rankformer.tuning.objective import Trial, Validations
from rankformer.tuning.space import Space, contains

STARTUP_TRIALS = 10  # at random, before the sampler learns from what it saw
COMPLETE_TRIALS = 4  # before any is pruned
FIRST_VALIDATIONS = 3  # that every trial may have
STATES = {
    "complete": TrialState.COMPLETE,
    "short": TrialState.PRUNED,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def propose(space: Space, defaults: Mapping[str, Any], seed: int, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the settings to try next: the defaults first, then what the sampler proposes after the trials so far.

    Args:
        space: what may vary.
        defaults: the model's own value of each setting in the space.
        seed: with the number of the trial it decides every random draw.
        trials: all trials so far.
    """
    if not trials:
        return {name: defaults[name] for name in space}
    # Neighbouring seeds of the sampler's generator are not independent of each other; those of a hash are.
    digest = hashlib.sha256(f"{seed} {len(trials)}".encode()).digest()
    sampler = optuna.samplers.TPESampler(seed=int.from_bytes(digest[:4]), n_startup_trials=STARTUP_TRIALS)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        known = frozen(trial, space)
        if known.params:  # the sampler cannot use others
            study.add_trial(known)
    asked = study.ask(dict(space)).params
    return {name: _tidy(asked[name], space[name]) for name in space}


def frozen(trial: Trial, space: Space, attributes: Mapping[str, Any] | None = None) -> optuna.trial.FrozenTrial:
    """Return a trial as optuna holds it, without parameters where one is a default outside of the space."""
    inside = all(contains(dimension, trial.settings[name]) for name, dimension in space.items())
    return create_trial(
        state=STATES[trial.state],
        value=trial.value,
        params={name: trial.settings[name] for name in space} if inside else {},
        distributions=dict(space) if inside else {},
        intermediate_values=dict(trial.validations),
        user_attrs=dict(attributes or {}),
    )


def falls_behind(trials: Sequence[Trial], validations: Validations) -> bool:
    """Whether the best of these validations is below the median of the complete trials at the same epoch."""
    complete = [trial.validations for trial in trials if trial.state == "complete"]
    if len(complete) < COMPLETE_TRIALS or len(validations) < FIRST_VALIDATIONS:
        return False
    others = [values[max(validations)] for values in complete if max(validations) in values]
    return bool(others) and max(validations.values()) < statistics.median(others)


def _tidy(value: Any, dimension: Any) -> Any:
    """Return a float with three digits; more of them would only be noise in a configuration file."""
    if not isinstance(dimension, optuna.distributions.FloatDistribution):
        return value
    return min(max(float(f"{value:.3g}"), dimension.low), dimension.high)
