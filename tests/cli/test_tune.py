import builtins
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest

from rankformer.cli.tune import TuningProgress
from rankformer.data.parts import Parts
from rankformer.data.source import DataSource

from .conftest import CLICK_COLUMNS

TINY = ["--set", "validate_every=2", "--set", "embedding_dim=4", "--set", "metric=ndcg@5", "--epochs", "4"]


@pytest.fixture(autouse=True)
def _small_steps(one_thread):
    """The log here is too small to share out."""


@pytest.fixture
def tune(cli, clicks, tmp_path):
    def call(*arguments, model="mf", trials=3, data=clicks, out=tmp_path / "study"):
        where = ["--out", out, "--model", model, "--trials", trials]
        return cli("tune", data, *where, *CLICK_COLUMNS, *TINY, *arguments)

    return call


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "study"


def test_from_search_to_training(cli, tune, clicks, folder, tmp_path):
    outcome = tune()
    assert outcome.code == 0
    assert [line.split("  ")[0] for line in outcome.err.splitlines()] == [
        *("trial 0 (1/3)", "trial 1 (2/3)", "trial 2 (3/3)")
    ]
    assert "mf on clicks: 3 trials, seed 0" in outcome.out
    assert "best: trial" in outcome.out
    names = {"best.toml", "trials.csv", "trials.png", "study.json", "study.lock"}
    assert {path.name for path in folder.iterdir()} == names
    content = tomllib.loads((folder / "best.toml").read_text(encoding="utf-8"))
    assert content["settings"]["epochs"] == 4
    assert content["data"] == {"user": "visitor", "item": "product", "title": "name"}
    trained = cli("train", clicks, "--config", folder / "best.toml", "--out", tmp_path / "run", "--json")
    assert trained.code == 0
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    best = max(float(row["value"]) for row in csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert max(event["ndcg@5"] for event in log if event["event"] == "validation") == best
    shown = outcome.out.split("train:  rankformer ")[1].split()
    assert cli(*shown).code == 0


def test_json_is_alone_and_the_same_command_changes_nothing(tune, folder):
    document = tune("--json").json
    assert (document["model"], document["seed"], document["metric"]) == ("mf", 0, "ndcg@5")
    assert document["finished"]
    assert len(document["trials"]) == 3
    assert document["best"]["value"] == max(trial["value"] for trial in document["trials"])
    assert document["best"]["settings"]["epochs"] == 4
    assert document["trials"][0]["settings"] == {"learning_rate": 0.05, "l2": "auto"}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = tune("--json")
    assert again.json == document
    assert again.err == "3 of 3 trials are there already\n"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_noted_command_is_the_same_search(cli, tune, folder, tmp_path, monkeypatch):
    document = tune("--json", "--seed", 5).json
    command = re.search(r"#     rankformer (tune .*)", (folder / "best.toml").read_text(encoding="utf-8"))[1]
    monkeypatch.chdir(tmp_path)
    again = cli(*command.split(), "--json")
    assert again.json["study"] == "runs/tune/clicks/mf"  # where a search goes without --out
    assert [trial["value"] for trial in again.json["trials"]] == [trial["value"] for trial in document["trials"]]


def test_the_test_part_is_not_looked_at(tune, clicks, monkeypatch, tmp_path):
    expected = tune("--json", trials=2).json
    load = DataSource.load

    def without_test(self):
        parts = load(self)
        # Anything but its hash raises an AttributeError or TypeError.
        return Parts(parts.train, parts.valid, SimpleNamespace(fingerprint=parts.test.fingerprint))

    monkeypatch.setattr(DataSource, "load", without_test)
    document = tune("--json", trials=2, out=tmp_path / "other").json
    assert [trial["value"] for trial in document["trials"]] == [trial["value"] for trial in expected["trials"]]


def test_a_space_of_ones_own(tune, tmp_path):
    (tmp_path / "space.toml").write_text("l2 = [0.03, 1e-2]\n", encoding="utf-8")
    document = tune("--space", tmp_path / "space.toml", "--json").json
    assert document["space"] == {"l2": [0.03, 1e-2]}
    first, *others = (trial["settings"]["l2"] for trial in document["trials"])
    assert first == "auto", "the default, outside of the space"
    assert set(others) <= {0.03, 1e-2}


def test_a_model_of_ones_own(cli, tune, clicks, folder, tmp_path, monkeypatch):
    text = "from rankformer.models.matrix_factorization import MatrixFactorization\n\n\n"
    text += 'class Own(MatrixFactorization):\n    name = "own"\n'
    (tmp_path / "own_model.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert tune("--json", model="own_model:Own", trials=1).json["model"] == "own"
    content = (folder / "best.toml").read_text(encoding="utf-8")
    assert 'model = "own_model:Own"' in content
    assert "rankformer tune " + str(clicks) + " --model own_model:Own" in content
    assert cli("train", clicks, "--config", folder / "best.toml", "--out", tmp_path / "run").code == 0


def test_epochs_are_an_upper_bound(tune, cli, clicks, tmp_path):
    document = tune("--set", "epochs=2", "--json", trials=1).json
    assert document["fixed"]["epochs"] == 2


def test_a_trial_that_diverges_is_one_line_among_others(tune, folder, tmp_path):
    (tmp_path / "space.toml").write_text("learning_rate = [1e38, 2e38]\n", encoding="utf-8")
    outcome = tune("--space", tmp_path / "space.toml", "--json")
    assert outcome.code == 0
    assert [trial["state"] for trial in outcome.json["trials"]] == ["complete", "failed", "failed"]
    assert outcome.json["best"]["number"] == 0
    assert "failed: step" in outcome.err


def test_when_all_fail_there_is_nothing_to_choose(tune, folder):
    outcome = tune("--set", "learning_rate=1e38", trials=2)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("error: none of 2 trials is complete, see")
    assert not (folder / "best.toml").exists()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--model", "popularity"], "nothing to tune for popularity: it has no settings"),
        (["--model", "mff"], "did you mean 'mf'"),
        (["--set", "learning_rate=1", "--set", "l2=0"], "every setting that is searched is fixed"),
        (["--set", "width=3"], "unknown setting 'width'"),
        (["--set", "metric=ndgc@20"], "unknown metric"),
        (["--space", "none.toml"], "none.toml cannot be read"),
        (["--device", "tpu"], "device='tpu'"),
        (["--parts", "0.8,0,0.2"], "no validation part"),
        (["--model", "ials"], "--epochs 4: ials has none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_writes_nothing(cli, clicks, folder, extra, message):
    tiny = [] if "--model" in extra else TINY
    outcome = cli("tune", clicks, "--out", folder, "--model", "mf", *CLICK_COLUMNS, *tiny, "--epochs", 4, *extra)
    assert outcome.code == 2
    assert message in outcome.error
    assert not folder.exists()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("learning_rat = [1, 2]", [], "mf has no setting 'learning_rat'; did you mean 'learning_rate'?"),
        ("l2 = [0.1, 0.2]", ["--set", "l2=0.1"], "l2 is fixed by --set and searched by"),
        ("epochs = {low = 1, high = 3}", [], "--epochs 4: "),
    ],
)
def test_a_space_that_does_not_fit(tune, tmp_path, folder, text, arguments, message):
    (tmp_path / "space.toml").write_text(text, encoding="utf-8")
    outcome = tune("--space", tmp_path / "space.toml", *arguments)
    assert outcome.code == 2
    assert message in outcome.error
    assert not folder.exists()


def test_another_search_in_the_folder(tune, folder):
    assert tune(trials=1).code == 0
    before = (folder / "study.json").read_bytes()
    for arguments, name in (
        (["--seed", 1], "seed"),
        (["--split-seed", 1], "data"),
        (["--set", "l2=0"], "fixed settings"),
        (["--set", "patience=3"], "fixed settings"),
    ):
        outcome = tune(*arguments)
        assert outcome.code == 2
        assert f"study.json is another search: its {name} is" in outcome.error
    (folder / "study.json").write_bytes(before.replace(b'"complete"', b'"pruned"'))
    assert "study.json is damaged" in tune().error


def test_when_the_time_is_up_the_same_command_goes_on(tune):
    stopped = tune("--timeout", 0)
    assert (stopped.code, stopped.out) == (0, "")
    assert "the time is up: 0 of 3 trials are in" in stopped.err
    assert tune("--timeout", 0, "--json").json["best"] is None
    assert len(tune("--json").json["trials"]) == 3


def test_without_optuna_or_matplotlib(tune, folder, monkeypatch):
    real, absent = builtins.__import__, "optuna"

    def some(name, *rest):
        if name.split(".")[0] == absent:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", some)
    assert "pip install 'rankformer[tune]'" in tune().error
    assert not folder.exists()
    absent = "matplotlib"
    outcome = tune(trials=1)
    assert outcome.code == 0
    assert "no picture was drawn: matplotlib is not installed" in outcome.err
    assert not (folder / "trials.png").exists()


def test_interrupted_it_says_how_to_go_on(tune, folder, monkeypatch, tmp_path):
    whole = tune("--json", out=tmp_path / "whole").json
    seen = []

    def stop(self, event):
        seen.append(event)
        if len(seen) == 9:  # in the second trial; the first had six events
            raise KeyboardInterrupt

    monkeypatch.setattr(TuningProgress, "note_event", stop)
    outcome = tune("--json")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.splitlines()[-1] == f"stopped: 1 of 3 trials are in {folder}; run the same command to continue"
    assert (folder / "best.toml").exists()
    monkeypatch.undo()
    resumed = tune("--json").json
    assert [trial["validations"] for trial in resumed["trials"]] == [trial["validations"] for trial in whole["trials"]]


def test_a_real_interrupt(clicks, tmp_path):
    """As a user does it: in a process of its own, stopped by Ctrl-C."""
    script = "import sys; from rankformer.cli.main import run; sys.exit(run())"
    arguments = ["tune", str(clicks), "--model", "mf", "--trials", "100000", "--threads", "1", *CLICK_COLUMNS, *TINY]
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        told = (line for line in process.stderr if " ... " not in line)  # which a slow step is told by
        assert next(told).startswith("trial 0 (1/100000)")
        assert next(told).startswith("trial 1 (2/100000)")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert re.match(r"stopped: \d+ of 100000 trials are in runs/tune/clicks/mf; ", err.splitlines()[-1])
    assert "Traceback" not in err
