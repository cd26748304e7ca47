"""`rankformer tune --budget`: the quick search, kept in the same folder as the other and continued like it."""

import csv
import tomllib

import pytest

from rankformer.runs.saved import load_run
from rankformer.tuning.objective import Objective

from .conftest import CLICK_COLUMNS


@pytest.fixture(autouse=True)
def _small_steps(one_thread):
    """The log here is too small to share out."""


@pytest.fixture
def tune(cli, clicks, tmp_path):
    def call(*arguments, model="ials", budget="60s"):
        where = ["--out", tmp_path / "study", "--model", model, "--set", "embedding_dim=4"]
        return cli("tune", clicks, *where, *CLICK_COLUMNS, "--budget", budget, *arguments)

    return call


def values(document):
    return [(trial["state"], trial["settings"], trial["value"]) for trial in document["trials"]]


def test_from_search_to_training(cli, tune, clicks, tmp_path):
    outcome = tune("--json")
    assert outcome.code == 0
    trials = outcome.json["trials"]
    assert outcome.json["finished"]
    short = sum(trial["state"] == "short" for trial in trials)
    assert 4 <= short <= 12  # of 12 combinations, none beyond a clearly worse one
    assert [trial["state"] for trial in trials] == ["short"] * short + ["complete"] * (len(trials) - short)
    assert 3 <= len(trials) - short <= 4  # a quarter of the combinations, and the defaults once
    assert {trial["settings"]["iterations"] for trial in trials if trial["state"] == "short"} == {3}
    assert outcome.json["best"]["value"] == max(trial["value"] for trial in trials if trial["state"] == "complete")
    assert outcome.err.splitlines()[1].startswith("trial 1  ndcg@20 0.")
    assert "(short)" in outcome.err.splitlines()[1]
    folder = tmp_path / "study"
    with open(folder / "trials.csv", encoding="utf-8") as stream:
        assert [row["iterations"] for row in csv.DictReader(stream)][short - 1 : short + 1] == ["3", "15"]
    text = (folder / "best.toml").read_text(encoding="utf-8")
    assert "--budget 60s" in text
    assert "--trials" not in text
    assert "iterations" not in tomllib.loads(text)["settings"]
    assert cli("train", clicks, "--config", folder / "best.toml", "--out", tmp_path / "run").code == 0


def test_the_same_command_changes_nothing_and_a_stopped_one_continues(tune, tmp_path, monkeypatch):
    document = tune("--json").json
    again = tune("--json")
    assert again.json == document
    assert again.err == f"{len(document['trials'])} trials are there already\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study").rename(tmp_path / "first")
    run, left = Objective.run, [7]

    def interrupted(self, *arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return run(self, *arguments, **options)

    monkeypatch.setattr(Objective, "run", interrupted)
    stopped = tune()
    assert stopped.code == 130
    assert stopped.err.splitlines()[-1].startswith("stopped: 7 trials are in ")
    monkeypatch.setattr(Objective, "run", run)
    assert values(tune("--json").json) == values(document)


def test_a_budget_that_is_used_up_leaves_what_was_found(tune):
    first = tune(budget="0.0001s")
    assert first.code == 0
    assert "note: the time is up: 1 trials are in" in first.err or "note: the time is up: 0 trials are in" in first.err
    document = tune("--json", budget="60s").json
    assert document["finished"]


def test_a_search_of_the_other_kind_is_refused(cli, tune, clicks, tmp_path):
    assert tune().code == 0
    other = cli(
        "tune", clicks, "--out", tmp_path / "study", "--model", "ials", "--set", "embedding_dim=4", *CLICK_COLUMNS
    )
    assert other.code == 2
    assert "is another search: its search space" in other.error


def test_epochs_that_are_fixed_make_every_fit_whole(tune):
    trials = tune("--json", "--epochs", "4", model="lightgcn").json["trials"]
    assert {trial["state"] for trial in trials} == {"complete"}
    assert len(trials) > 1


def test_what_makes_a_fit_dearer_is_part_of_the_search(cli, clicks, tmp_path):
    where = ["--out", tmp_path / "study", "--model", "ials", *CLICK_COLUMNS]
    trials = cli("tune", clicks, *where, "--budget", "60s", "--json").json["trials"]
    whole = [trial["settings"] for trial in trials if trial["settings"].get("iterations", 15) == 15]
    assert [settings["embedding_dim"] for settings in whole[:2]] == [128, 256]
    assert whole[1] == {**whole[0], "embedding_dim": 256}
    assert len({str(trial["settings"]) for trial in trials}) == len(trials)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--set", "regularization=0.1", "--set", "weight=5"], "ials has all of its ladder fixed by --set"),
        (["--trials", 5], "--budget and --trials contradict each other"),
        (["--timeout", 5], "--budget and --timeout contradict each other"),
        (["--budget", "0s"], "a search needs more than 0 seconds"),
        (["--budget", "soon"], "'soon' is not a duration"),
    ],
)
def test_mistakes_are_one_line(tune, extra, message, tmp_path):
    outcome = tune(*extra)
    assert outcome.code == 2
    assert message in outcome.error
    assert not (tmp_path / "study").exists()


def test_a_method_without_a_ladder_is_refused(cli, clicks, tmp_path):
    where = ["--out", tmp_path / "study", "--model", "popularity"]
    outcome = cli("tune", clicks, *CLICK_COLUMNS, *where, "--budget", "9s")
    assert outcome.code == 2
    assert outcome.error.endswith("has no ladder of values, and --budget searches nothing else; leave --budget out")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("model", "given", "searched"),
    [
        ("ials", ["embedding_dim=4"], ["regularization", "weight"]),
        ("mf-softmax", ["embedding_dim=4", "epochs=4", "validate_every=2"], ["loss_temperature"]),
    ],
)
def test_train_searches_the_few_settings_that_matter_unless_they_are_given(
    cli, clicks, tmp_path, model, given, searched
):
    def train(folder, *settings, **more):
        changes = [word for setting in (*given, *settings) for word in ("--set", setting)]
        where = ["--model", model, "--out", tmp_path / folder, *CLICK_COLUMNS]
        return cli("train", clicks, *where, *changes, *more.get("flags", ()))

    outcome = train("searched")
    assert outcome.code == 0
    run = load_run(tmp_path / "searched")
    [chosen] = [event["settings"] for event in run.log if event["event"] == "chosen"]
    assert chosen.keys() >= set(searched)
    assert all(run.settings[name] == value for name, value in chosen.items())
    told = ", ".join(f"{name}={value}" for name, value in chosen.items())
    assert f"chosen on the validation part: {told}" in outcome.out
    trials = [event["value"] for event in run.log if event["event"] == "trial"]
    assert len(trials) > 2
    assert "already finished" in train("searched", flags=["--resume"]).err

    fixed = [f"{name}={value}" for name, value in chosen.items()]
    assert train("given", *fixed).code == 0
    same = load_run(tmp_path / "given")
    assert not [event for event in same.log if event["event"] == "trial"]
    assert same.metrics == run.metrics
    assert "chosen" not in train("untuned", "tune=false").out
    wrong = train("searched", "tune=false", flags=["--resume"])
    assert wrong.code == 2
    assert "tune" in wrong.err
