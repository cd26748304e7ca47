import csv
import tomllib

import pytest

from rankformer.models.registry import model_class
from rankformer.runs.configuration import chosen_settings
from rankformer.tuning.objective import Trial
from rankformer.tuning.report import (
    CONFIG,
    TABLE,
    best_settings,
    relative_difference,
    write_reports,
)
from rankformer.tuning.study import Study

COMMANDS = ("rankformer tune log.csv --model mf", "rankformer train log.csv --config best.toml")


@pytest.fixture
def study(objective, space):
    trials = [
        Trial(0, "complete", {"learning_rate": 0.1, "l2": 1e-4}, 0.25, 4, {4: 0.25}, 1.5),
        Trial(1, "complete", {"learning_rate": 1e-05, "l2": "auto"}, 0.3, 8, {8: 0.3}, 2.0),
        Trial(2, "pruned", {"learning_rate": 0.2, "l2": 0.0}, 0.1, 2, {2: 0.1}),
        Trial(3, "failed", {"learning_rate": 0.9, "l2": 0.0}, problem='the loss, "at last", is not finite'),
    ]
    return Study(objective, space, trials)


def config_text(study, reading=()):
    """The configuration file that a search leaves behind."""
    write_reports(study, COMMANDS, dict(reading))
    return (study.objective.folder / CONFIG).read_text(encoding="utf-8")


def test_settings_that_are_defaults_anyway_are_left_out(study):
    settings = best_settings(study, study.best)
    assert settings == {**study.objective.fixed, "learning_rate": 1e-05}
    assert "l2" not in settings


def test_the_configuration_says_where_it_comes_from(study):
    text = config_text(study)
    header = [line for line in text.splitlines() if line.startswith("#")]
    assert header[0] == "# mf on tastes: ndcg@5 0.300000 on the validation part, epoch 8, trial 1."
    assert "4 trials (1 pruned, 1 failed), seed 3" in header[1]
    assert study.objective.data.fingerprint in header[2]
    assert COMMANDS[0] in header[4]
    assert COMMANDS[1] in header[5]


def test_the_configuration_is_what_was_trained(study):
    reading = {"user": 'a "b"\\\tü\x7f', "k_core": 3, "parts": [0.7, 0.1, 0.2], "header": False}
    content = tomllib.loads(config_text(study, reading))
    assert (content["model"], content["seed"], content["data"]) == ("mf", 3, reading)
    chosen = model_class("mf")(**content["settings"]).settings
    assert chosen == model_class("mf")(**study.objective.fixed, **study.best.settings).settings


def test_a_setting_of_none_is_written_and_read_as_such(objective):
    method = model_class("gformer")
    default = method.settings_class().weight_decay
    aim = type(objective)(method, objective.data, {"clip_norm": None, "weight_decay": default}, 0, objective.folder)
    content = tomllib.loads(config_text(Study(aim, {}, [Trial(0, "complete", {}, 0.5)])))
    assert content["settings"] == {"tune": False, "clip_norm": "none"}
    assert chosen_settings(method.settings_class, content, [])["clip_norm"] is None


def test_the_table(study):
    write_reports(study, COMMANDS, {})
    rows = list(csv.DictReader((study.objective.folder / TABLE).read_text(encoding="utf-8").splitlines()))
    assert [row["state"] for row in rows] == ["complete", "complete", "pruned", "failed"]
    assert float(rows[1]["learning_rate"]) == 1e-05
    assert (rows[3]["value"], rows[3]["problem"]) == ("", 'the loss, "at last", is not finite')


def test_the_gain_over_the_defaults(study):
    assert relative_difference(study) == pytest.approx(0.2)
    del study.trials[0]
    study.trials.insert(0, Trial(0, "failed", {"learning_rate": 0.1, "l2": 1e-4}))
    assert relative_difference(study) is None


def test_the_files(study):
    write_reports(study, COMMANDS, {})
    folder = study.objective.folder
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, TABLE]


def test_without_a_complete_trial_there_is_a_table_only(study):
    study.trials[:] = study.trials[3:]
    write_reports(study, COMMANDS, {})
    assert [path.name for path in study.objective.folder.iterdir()] == [TABLE]
