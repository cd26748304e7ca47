"""What `fit` shows of its progress, and where."""

import io
import sys

import pytest
from tests.runs.trainings import PARTS

from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer

SETTINGS = {"embedding_dim": 4, "num_layers": 1, "epochs": 4, "validate_every": 2, "schedule": "constant", "seed": 0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_on_a_terminal(monkeypatch, **options):
    """What a fit shows on a terminal in place of stderr; not a fixture, since pytest sets stderr anew after those."""
    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "120")
        patch.setattr(sys, "stderr", screen)
        Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid, **options)
    return screen.getvalue()


def test_nothing_is_shown_where_nobody_watches(capsys):
    Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid)
    assert capsys.readouterr().err == ""


def test_lines_where_they_are_asked_for(capsys):
    events = []
    Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid, verbose=True, on_event=events.append)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines] == [["epoch", "2/4"], ["epoch", "4/4"]]
    assert len(events) == 6, "the caller's own function is called as well"
    Popularity().fit(PARTS.train, verbose=True)
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(monkeypatch):
    shown = shown_on_a_terminal(monkeypatch)
    assert "4/4" in shown
    assert "best ndcg@20" in shown


@pytest.mark.parametrize("options", [{"verbose": False}, {"on_event": lambda event: None}])
def test_no_bar_where_it_is_not_wanted_or_someone_else_shows_it(monkeypatch, options):
    assert shown_on_a_terminal(monkeypatch, **options) == ""


def test_a_notebook_without_widgets_gets_lines_in_its_output(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rankformer.runs.progress.find_spec", lambda name: None)
    Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid)
    captured = capsys.readouterr()
    assert [line.split()[1] for line in captured.out.splitlines()] == ["2/4", "4/4"]
    assert captured.err == ""


def test_a_refit_says_that_it_is_one(capsys):
    from rankformer.runs.progress import training_progress

    with training_progress(Rankformer(**SETTINGS).settings, True, watched=False, console=None) as show_event:
        for epoch in (1, 2, 3):
            show_event({"event": "epoch", "epoch": epoch, "loss": 0.5, "seconds": 1.0, "refit": {"epochs": 3}})
    assert capsys.readouterr().err.splitlines() == [
        "refit epoch 2/3  loss 0.5000  1.0 s",
        "refit epoch 3/3  loss 0.5000  1.0 s",
    ]
