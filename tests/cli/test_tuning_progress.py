from types import SimpleNamespace

import pytest

from rankformer.cli import progress, tune
from rankformer.cli.tune import TuningProgress
from rankformer.tuning.objective import Trial

from .test_progress import wait_for

TRIALS = [
    Trial(0, "complete", {"l2": 0.5}, 0.25, 4, {4: 0.25}, 1.25),
    Trial(1, "pruned", {"l2": 0.1}, 0.125, 2, {2: 0.125}, 0.5),
    Trial(2, "failed", {"l2": 0.9}, problem="the loss is not finite"),
]


@pytest.fixture
def study():
    return SimpleNamespace(trials=TRIALS, best=TRIALS[0], objective=SimpleNamespace(metric="ndcg@20"))


def test_lines_elsewhere(study, capsys):
    with TuningProgress(5) as shown:
        shown.begin(study)
        shown.note_event({"event": "epoch", "epoch": 1, "seconds": 0.1})
        for trial in TRIALS:
            shown.note_trial(trial, study)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "3 of 5 trials are there already",
        "trial 0 (1/5)  ndcg@20 0.2500 (best)  1.2 s  l2=0.5",
        "trial 1 (2/5)  ndcg@20 0.1250 (pruned)  0.5 s  l2=0.1",
        "trial 2 (3/5)  failed: the loss is not finite  0.0 s  l2=0.9",
    ]


def test_a_bar_on_a_terminal(study, monkeypatch, capsys):
    monkeypatch.setattr(tune, "on_terminal", lambda: True)
    with TuningProgress(5) as shown:
        shown.begin(study)
        shown.note_event({"event": "solved", "seconds": 0.1})
        shown.note_event({"event": "epoch", "epoch": 7, "seconds": 0.1})
        task = shown.bar.tasks[0]
        assert (task.completed, task.total) == (3, 5)
        assert task.fields["status"] == "epoch 7  best ndcg@20 0.2500 in trial 0"
        shown.note_trial(TRIALS[0], study)
        assert task.fields["status"] == "best ndcg@20 0.2500 in trial 0"
    assert shown.bar.finished is False
    assert not shown.bar.live.is_started
    assert capsys.readouterr().out == ""


def test_a_long_trial_is_told_off_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with TuningProgress(5) as shown:
        wait_for(capsys, "first trial ... 0 s\n")
        shown.note_event({"event": "epoch", "epoch": 7, "seconds": 0.1})
        wait_for(capsys, "trial: epoch 7 ... ")
