"""The search strategy, by optuna: which settings to try next, and which trainings are not worth continuing.

Both are pure functions of the trials so far: the sampler is made anew for each trial from (seed, number), and its
memory is filled from our own records. So a search that was killed and resumed ends as it would have ended, and nothing
of optuna's own storages, one of which unpickles, is ever written or read.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rankformer.errors import ConfigError
from rankformer.tuning.objective import Trial, Validations
from rankformer.tuning.space import Choices, Dimension, Range, Space

if TYPE_CHECKING:
    import optuna

STARTUP_TRIALS = 10  # at random, before the sampler learns from what it saw
COMPLETE_TRIALS = 4  # before any is pruned
FIRST_VALIDATIONS = 3  # that every trial may have


def require_optuna() -> None:
    """Raise a ConfigError that names the extra if optuna is not installed; if it is, keep it from logging."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(f"tuning needs optuna ({error}); install it with: pip install 'rankformer[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


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
    import optuna

    distributions = {name: _distribution(dimension) for name, dimension in space.items()}
    sampler = optuna.samplers.TPESampler(seed=_seed_of(seed, len(trials)), n_startup_trials=STARTUP_TRIALS)
    # Defaults outside of the space teach the sampler nothing: it has no place for them.
    inside = [trial for trial in trials if all(space[name].contains(trial.settings[name]) for name in space)]
    study = _study_of(inside, distributions, sampler=sampler)
    asked = study.ask(distributions)
    return {name: _tidy(space[name], asked.params[name]) for name in space}


class Pruner:
    """Says whether a training falls behind the median of the complete trials at the same epoch."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        import optuna

        self._pruner = optuna.pruners.MedianPruner(n_startup_trials=COMPLETE_TRIALS, n_warmup_steps=0)
        self._study = _study_of(trials, {}, pruner=self._pruner)

    def falls_behind(self, validations: Validations) -> bool:
        """Whether to stop a training with these values, by epoch."""
        from optuna.trial import TrialState, create_trial

        if len(validations) < FIRST_VALIDATIONS:
            return False
        running = create_trial(state=TrialState.RUNNING, intermediate_values=dict(validations))
        return self._pruner.prune(self._study, running)


def _study_of(
    trials: Sequence[Trial], distributions: "dict[str, optuna.distributions.BaseDistribution]", **options: Any
) -> "optuna.Study":
    require_optuna()
    import optuna
    from optuna.trial import TrialState, create_trial

    states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    study = optuna.create_study(direction="maximize", **options)
    for trial in trials:
        known = create_trial(
            state=states[trial.state],
            value=trial.value,
            params={name: trial.settings[name] for name in distributions},
            distributions=distributions,
            intermediate_values=dict(trial.validations),
        )
        study.add_trial(known)
    return study


def _distribution(dimension: Dimension) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.values)
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _tidy(dimension: Dimension, value: Any) -> Any:
    """Return a float with three digits; more of them would only be noise in a configuration file."""
    if not isinstance(dimension, Range) or dimension.integer:
        return value
    return min(max(float(f"{value:.3g}"), dimension.low), dimension.high)


def _seed_of(seed: int, number: int) -> int:
    # Neighbouring seeds of the sampler's generator are not independent of each other; those of a hash are.
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:4])
