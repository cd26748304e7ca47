import math

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from rankformer.tuning.objective import Trial
from rankformer.tuning.space import contains
from rankformer.tuning.strategy import COMPLETE_TRIALS, FIRST_VALIDATIONS, falls_behind, propose

SPACE = {
    "rate": FloatDistribution(1e-3, 1.0, log=True),
    "layers": IntDistribution(1, 4),
    "kind": CategoricalDistribution(("a", "b", "c")),
    "flag": CategoricalDistribution((True, False)),
}
DEFAULTS = {"rate": 0.1, "layers": 3, "kind": "b", "flag": False, "width": 64}


def value_of(settings):
    """Best at rate 0.01 with kind c."""
    return 1 - abs(math.log10(settings["rate"]) + 2) / 3 + 0.2 * (settings["kind"] == "c")


def searched(count, seed=0, space=SPACE, defaults=DEFAULTS):
    trials = []
    while len(trials) < count:
        settings = propose(space, defaults, seed, trials)
        trials.append(Trial(len(trials), "complete", settings, value_of(settings)))
    return trials


def test_the_defaults_come_first():
    assert propose(SPACE, DEFAULTS, 0, []) == {"rate": 0.1, "layers": 3, "kind": "b", "flag": False}


def test_proposals_are_inside_and_readable():
    trials = searched(25)
    for trial in trials:
        assert list(trial.settings) == list(SPACE)
        assert all(contains(SPACE[name], value) for name, value in trial.settings.items())
        assert trial.settings["rate"] == float(f"{trial.settings['rate']:.3g}")
        assert type(trial.settings["layers"]) is int
        assert type(trial.settings["flag"]) is bool
    assert len({trial.settings["rate"] for trial in trials}) == 25
    assert {trial.settings["layers"] for trial in trials} == {1, 2, 3, 4}


def test_a_seed_is_a_search_and_another_seed_another():
    assert searched(14) == searched(14)
    assert searched(14)[1:] != searched(14, seed=1)[1:]


def test_it_learns_from_what_it_saw():
    """Random settings have the value 0.82 in the mean, and twenty of them hardly ever 0.92."""
    values = [trial.value for trial in searched(40)]
    assert sum(values[-20:]) / 20 > 0.92


def test_defaults_outside_of_the_space_are_tried_all_the_same():
    trials = searched(13, defaults={**DEFAULTS, "rate": 5.0})
    assert trials[0].settings["rate"] == 5.0
    assert all(contains(SPACE["rate"], trial.settings["rate"]) for trial in trials[1:])


def test_failed_and_pruned_trials_are_taken_in():
    trials = searched(12)
    mixed = [
        *trials,
        Trial(12, "failed", trials[3].settings, problem="diverged"),
        Trial(13, "pruned", trials[4].settings, 0.1, 2, {1: 0.05, 2: 0.1}),
    ]
    assert propose(SPACE, DEFAULTS, 0, mixed).keys() == SPACE.keys()


class TestPruning:
    epochs = tuple(20 * step for step in range(1, FIRST_VALIDATIONS + 2))

    def trials(self, count, state="complete"):
        values = {20 * step: 0.1 * step for step in range(1, 6)}
        return [Trial(number, state, {}, 0.5, 100, values) for number in range(count)]

    def test_a_training_behind_the_median_is_stopped(self):
        trials = self.trials(COMPLETE_TRIALS)
        behind = dict.fromkeys(self.epochs, 0.01)
        assert falls_behind(trials, behind)
        assert not falls_behind(trials, {**behind, self.epochs[-1]: 0.9})

    def test_every_training_has_a_few_validations(self):
        trials = self.trials(COMPLETE_TRIALS)
        for count in range(1, FIRST_VALIDATIONS):
            assert not falls_behind(trials, dict.fromkeys(self.epochs[:count], 0.01))
        assert falls_behind(trials, dict.fromkeys(self.epochs[:FIRST_VALIDATIONS], 0.01))

    def test_without_enough_complete_trials_none_is_stopped(self):
        behind = dict.fromkeys(self.epochs, 0.0)
        assert not falls_behind(self.trials(COMPLETE_TRIALS - 1), behind)
        assert not falls_behind(self.trials(20, "pruned"), behind)
