import time
from dataclasses import fields, replace
from functools import partial

import pytest
from pydantic import Field

from rankformer.errors import DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.popularity import Popularity, PopularitySettings
from rankformer.models.registry import model_class
from rankformer.scoring.embeddings import Embeddings
from rankformer.tuning.objective import RUNNING, TimeIsUp, Trial, TuningData
from rankformer.tuning.strategy import falls_behind

SETTINGS = {"learning_rate": 0.1, "l2": 1e-4}


class PowerSettings(PopularitySettings):
    power: float = Field(default=1.0)


class Power(Popularity):
    """Popularity to a power: no epochs, no validations of its own."""

    name = "power"
    settings_class = PowerSettings

    def solve(self, graph):
        vectors = super().solve(graph)
        return Embeddings(vectors.users, vectors.items**self.settings.power)


def strong(count):
    """Trials that no other can keep up with."""
    values = dict.fromkeys(range(1, 9), 2.0)
    return [Trial(number, "complete", SETTINGS, 2.0, 8, values) for number in range(count)]


def run(objective, settings, earlier):
    """The next trial after the earlier ones."""
    return objective.run(len(earlier), settings, partial(falls_behind, earlier))


def test_there_is_no_place_for_a_test_part():
    assert [field.name for field in fields(TuningData)] == ["name", "fingerprint", "train", "valid"]


def test_a_validation_part_is_needed(parts):
    with pytest.raises(DataError, match="no validation part"):
        TuningData("tastes", "0" * 64, parts.train, parts.valid.rows([]))


def test_the_value_is_the_best_validation_of_the_very_training(objective, parts):
    trial = run(objective, SETTINGS, [])
    assert (trial.number, trial.state, trial.settings) == (0, "complete", SETTINGS)
    assert list(trial.validations) == list(range(1, 9))
    assert trial.value == max(trial.validations.values()) == trial.validations[trial.epoch]
    model = model_class("mf")(seed=3, **objective.fixed, **SETTINGS).fit(parts.train, parts.valid)
    assert trial.value == pytest.approx(evaluate(model, parts.valid, metrics=["ndcg@5"]).metrics["ndcg@5"], abs=1e-7)


def test_fixed_settings_are_beaten_by_none_and_the_metric_is_theirs(objective):
    other = replace(objective, fixed={**objective.fixed, "metric": "recall@5", "epochs": 3})
    trial = run(other, SETTINGS, [])
    assert list(trial.validations) == [1, 2, 3]
    assert other.metric == "recall@5"
    assert trial.value != run(objective, SETTINGS, []).value


def test_a_trial_that_falls_behind_is_stopped(objective):
    seen = []
    trial = run(replace(objective, on_event=seen.append), SETTINGS, strong(5))
    assert (trial.number, trial.state) == (5, "pruned")
    assert list(trial.validations) == [1, 2, 3]
    assert trial.value == max(trial.validations.values())
    assert seen[-1]["epoch"] == 3


def test_at_its_last_epoch_a_trial_is_complete_however_bad(objective):
    short = replace(objective, fixed={**objective.fixed, "epochs": 3})
    assert run(short, SETTINGS, strong(5)).state == "complete"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"learning_rate": 1e38, "l2": 1.0}, "not finite"), ({"learning_rate": -1.0}, "learning_rate=-1.0")],
    ids=["diverged", "refused"],
)
def test_a_failure_is_a_result(objective, settings, problem):
    trial = run(objective, settings, [])
    assert (trial.state, trial.value) == ("failed", None)
    assert problem in trial.problem
    assert "\n" not in trial.problem


def test_a_mistake_of_ours_is_no_result(objective):
    def wrong(event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(replace(objective, on_event=wrong), SETTINGS, [])


class TestCutOff:
    def cut_at(self, objective, count, problem):
        """Run a trial up to an event, where the process ends."""
        seen = []

        def stop(event):
            seen.append(event)
            if len(seen) == count:
                raise problem

        with pytest.raises(type(problem)):
            run(replace(objective, on_event=stop), SETTINGS, strong(3))
        return seen

    @pytest.mark.parametrize("count", [1, 3, 8, 16])
    def test_it_goes_on_and_ends_the_same(self, objective, plain, tmp_path, count):
        whole = run(replace(objective, folder=tmp_path / "whole"), SETTINGS, strong(3))
        self.cut_at(objective, count, KeyboardInterrupt())
        seen = []
        resumed = run(replace(objective, on_event=seen.append), SETTINGS, strong(3))
        assert plain([resumed]) == plain([whole])
        assert seen[0]["epoch"] == (count - 1) // 2 + 1  # nothing before the checkpoint was trained again

    def test_what_came_before_the_checkpoint_is_judged_too(self, objective, plain, tmp_path):
        """A median reached early and lost again must save a resumed trial as it saves an unbroken one."""
        unbroken = run(replace(objective, folder=tmp_path / "whole"), SETTINGS, [])
        first = unbroken.validations[1]
        assert first < max(unbroken.validations.values())
        bar = dict.fromkeys(range(1, 9), (first + max(unbroken.validations.values())) / 2)
        others = [Trial(number, "complete", SETTINGS, 1.0, 8, bar) for number in range(5)]
        expected = run(replace(objective, folder=tmp_path / "again"), SETTINGS, others)
        self.cut_at(objective, 5, KeyboardInterrupt())
        # The cut trial had number 3; the folder is named by number and settings.
        folder = objective.folder / RUNNING
        (cut,) = folder.iterdir()
        cut.rename(folder / cut.name.replace("3-", "5-"))
        assert plain([run(objective, SETTINGS, others)]) == plain([expected])

    def test_another_trials_checkpoint_is_not_taken_up(self, objective, plain, tmp_path):
        other = {"learning_rate": 0.3, "l2": 0.0}
        whole = run(replace(objective, folder=tmp_path / "whole"), other, strong(3))
        self.cut_at(objective, 6, KeyboardInterrupt())
        assert plain([run(objective, other, strong(3))]) == plain([whole])
        assert len(list((objective.folder / RUNNING).iterdir())) == 1

    @pytest.mark.parametrize("name", ["latest.json", "log.jsonl", "safetensors"])
    def test_a_damaged_checkpoint_only_costs_time(self, objective, plain, tmp_path, name):
        whole = run(replace(objective, folder=tmp_path / "whole"), SETTINGS, strong(3))
        self.cut_at(objective, 9, KeyboardInterrupt())
        (damaged,) = [path for path in objective.folder.rglob("*") if path.name.endswith(name)]
        damaged.write_bytes(b"{" + damaged.read_bytes()[5:])
        assert plain([run(objective, SETTINGS, strong(3))]) == plain([whole])

    def test_when_the_time_is_up_the_checkpoint_stays(self, objective, plain, tmp_path):
        whole = run(replace(objective, folder=tmp_path / "whole"), SETTINGS, strong(3))
        late = replace(objective, deadline=time.monotonic() - 1)
        with pytest.raises(TimeIsUp):
            run(late, SETTINGS, strong(3))
        self.cut_at(objective, 4, KeyboardInterrupt())
        with pytest.raises(TimeIsUp):
            run(late, SETTINGS, strong(3))
        assert plain([run(objective, SETTINGS, strong(3))]) == plain([whole])


def test_a_method_without_epochs_is_measured(parts, objective):
    aim = replace(objective, method=Power, fixed={}, deadline=time.monotonic() - 1)
    up, down = run(aim, {"power": 1.0}, []), run(aim, {"power": -1.0}, strong(9))
    expected = evaluate(Popularity().fit(parts.train), parts.valid, metrics=["ndcg@20"]).metrics["ndcg@20"]
    assert (up.state, up.value, up.epoch, up.validations) == ("complete", expected, None, {})
    assert down.state == "complete"
    assert down.value != up.value
