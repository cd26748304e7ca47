"""--callback and --track of train and tune; tests/tracking has the trackers themselves."""

import json
import sys
from importlib.util import find_spec

import pytest

from .conftest import CLICK_COLUMNS, TINY

CALLBACK = """
import json

def keep(event):
    with open("events.jsonl", "a") as stream:
        stream.write(json.dumps(event) + "\\n")

def fail(event):
    if event["event"] == "validation":
        raise ValueError("the disk\\nis full")

number = 3
"""


@pytest.fixture
def train(cli, clicks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "my_callback", raising=False)
    (tmp_path / "my_callback.py").write_text(CALLBACK)
    return lambda *more: cli("train", clicks, "--out", "run", *CLICK_COLUMNS, *TINY, *more)


def events():
    with open("events.jsonl") as stream:
        return [json.loads(line) for line in stream]


def test_a_callback_gets_every_event(train, tmp_path):
    assert train("--callback", "my_callback:keep", "--seed", "3").code == 0
    first, *between, last = events()
    assert (first["event"], first["name"]) == ("begin", "run")
    assert (first["settings"]["model"], first["settings"]["seed"]) == ("rankformer", 3)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [event for event in between if "refit" not in event] == log
    assert [event["event"] for event in between if "refit" in event]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    end = {"event": "end", "part": "test", "metrics": manifest["metrics"], "run": str(tmp_path / "run")}
    assert last == end


def test_a_callback_that_fails_stops_the_training_and_it_can_be_resumed(train, tmp_path):
    outcome = train("--callback", "my_callback:fail")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1] == (
        "error: --callback my_callback:fail failed at the event 'validation': ValueError: the disk is full; "
        "fix it, or leave it out"
    )
    assert not (tmp_path / "run" / "manifest.json").exists()
    assert train("--resume", "--callback", "my_callback:keep").code == 0
    epochs = [event["epoch"] for event in events() if event["event"] == "epoch" and "refit" not in event]
    assert epochs == [1, 2, 3, 4, 5, 6]  # those before the resume too, once


def test_a_callback_cannot_change_what_the_training_sees(train, tmp_path):
    (tmp_path / "greedy.py").write_text("def take(event):\n    event.get('settings', {}).clear()\n    event.clear()\n")
    assert train("--callback", "greedy:take").code == 0
    taken = (tmp_path / "run" / "log.jsonl").read_text()
    assert '"event": "validation"' in taken


@pytest.mark.parametrize(("option", "what"), [("--callback", "leaving:stop"), ("--model", "leaving:Model")])
def test_a_module_that_leaves_is_named(train, tmp_path, monkeypatch, option, what):
    """Scripts without a main guard call sys.exit when they are imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit('usage: leaving')\n")
    outcome = train(option, what)
    assert outcome.code == 2
    assert "leaving" in outcome.error
    assert "cannot be loaded: SystemExit: usage: leaving" in outcome.error
    (tmp_path / "syntax.py").write_text("def f(:\n")
    assert "SyntaxError" in train(option, "syntax:f").error


def test_a_callback_that_leaves_is_named(train, tmp_path):
    (tmp_path / "late.py").write_text("import sys\ndef stop(event):\n    sys.exit(3)\n")
    outcome = train("--callback", "late:stop")
    assert outcome.code == 2
    assert "error: --callback late:stop failed at the event 'begin': SystemExit: 3" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--callback", "my_callback"], "--callback my_callback cannot be loaded: ValueError: expected package.module"),
        (["--callback", "no_such_module:f"], "No module named 'no_such_module'"),
        (["--callback", "my_callback:missing"], "has no attribute 'missing'"),
        (["--callback", "my_callback:number"], "my_callback:number is not a function"),
        (["--track", "sacred"], "cannot track with 'sacred'; expected one of tensorboard, mlflow, wandb"),
        (["--track", "mlflow,sacred"], "'sacred'"),
    ],
)
def test_mistakes_are_found_before_anything_is_read(train, tmp_path, monkeypatch, option, message):
    monkeypatch.setattr("rankformer.tracking.tracked.find_spec", lambda name: True)
    outcome = train(*option)
    assert outcome.code == 2
    assert message in outcome.error
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_tracker_that_is_not_installed(train):
    assert (
        "--track wandb needs wandb, which is missing: pip install 'rankformer[track]'"
        in train("--track", "wandb").error
    )


def test_a_search_tells_of_its_trials(train, cli, clicks):
    search = ["tune", clicks, "--out", "search", *CLICK_COLUMNS, "--model", "mf", "--epochs", "4", "--seed", "1"]
    found = cli(*search, "--trials", "2", "--callback", "my_callback:keep", "--json").json["trials"]
    told = events()
    assert [event["event"] for event in told if "trial" not in event] == ["begin", "tuned", "tuned", "end"]
    assert {event["trial"] for event in told if "trial" in event} == {0, 1}
    assert [{key: event[key] for key in found[0]} for event in told if event["event"] == "tuned"] == found
    assert told[-1]["metrics"] == {"ndcg@20": max(trial["value"] for trial in found)}
    failing = cli(*search, "--trials", "3", "--callback", "my_callback:fail")
    assert failing.code == 2  # a mistake of the callback's is not a failed trial
    assert "--callback my_callback:fail failed at the event 'validation'" in failing.err


def test_methods_that_are_solved_have_events_too(cli, clicks, train):
    assert (
        cli("train", clicks, "--out", "run", *CLICK_COLUMNS, "--model", "ials", "--callback", "my_callback:keep").code
        == 0
    )
    assert {"begin", "solved", "validation", "end"} <= {event["event"] for event in events()}
