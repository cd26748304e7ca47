import io
import time

import pytest
from rich.console import Console

from rankformer.cli import progress
from rankformer.models.blend import Blend
from rankformer.models.popularity import Popularity
from rankformer.training.settings import TrainingSettings

SETTINGS = TrainingSettings(epochs=3, validate_every=2)
EVENTS = [
    {"event": "epoch", "epoch": 1, "loss": 0.75, "seconds": 0.1},
    {"event": "epoch", "epoch": 2, "loss": 0.5, "seconds": 0.2},
    {"event": "validation", "epoch": 2, "ndcg@20": 0.25, "best": True, "seconds": 0.3},
    {"event": "epoch", "epoch": 3, "loss": 0.4, "seconds": 0.4},
    {"event": "validation", "epoch": 3, "ndcg@20": 0.2, "best": False, "seconds": 0.5},
]


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal would show."""
    screen = io.StringIO()
    monkeypatch.setattr(progress, "on_terminal", lambda: True)
    monkeypatch.setattr(progress, "console", lambda stderr: Console(file=screen, force_terminal=True, width=120))
    return screen


def test_lines_of_validations(capsys):
    with progress.progress_of(SETTINGS, validates=True) as show_event:
        for event in EVENTS:
            show_event(event)
    assert capsys.readouterr().err.splitlines() == [
        "epoch 2/3  loss 0.5000  ndcg@20 0.2500 (best)  0.3 s",
        "epoch 3/3  loss 0.4000  ndcg@20 0.2000  0.5 s",
    ]


def test_lines_without_validations_come_at_the_same_epochs(capsys):
    with progress.progress_of(SETTINGS, validates=False) as show_event:
        for event in EVENTS:
            if event["event"] == "epoch":
                show_event(event)
    assert capsys.readouterr().err.splitlines() == ["epoch 2/3  loss 0.5000  0.2 s", "epoch 3/3  loss 0.4000  0.4 s"]


def test_a_bar_on_a_terminal(terminal, capsys):
    with progress.progress_of(SETTINGS, validates=True) as show_event:
        for event in EVENTS:
            show_event(event)
    shown = terminal.getvalue()
    assert "3/3" in shown
    assert "loss 0.4000" in shown
    assert "best ndcg@20 0.2500 at 2" in shown
    assert capsys.readouterr().err == ""


def test_a_method_that_is_solved_shows_nothing(terminal):
    with progress.progress_of(Popularity().settings, validates=True) as show_event:
        assert show_event is None
    assert terminal.getvalue() == ""


def wait_for(capsys, words):
    """Return what was printed, as soon as it has the words."""
    shown, begin = "", time.monotonic()
    while words not in shown:
        assert time.monotonic() - begin < 60, shown
        time.sleep(0.01)
        shown += capsys.readouterr().err
    return shown


def test_a_long_step_is_told_off_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with progress.busy("reading a\x1b[31m.csv"):
        shown = wait_for(capsys, "reading a")
    assert shown.startswith("reading a\\x1b[31m.csv ... 0 s\n")


def test_a_long_epoch_is_told_off_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with progress.progress_of(SETTINGS, validates=True) as show_event:
        wait_for(capsys, "training ... 0 s\n")
        show_event(EVENTS[0])
        wait_for(capsys, "training: epoch 1/3 ... ")
    with progress.progress_of(Popularity().settings, validates=True):
        wait_for(capsys, "fitting ... 0 s\n")


def test_a_long_member_of_a_blend_is_told_off_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with progress.progress_of(Blend().settings, validates=True) as show_event:
        wait_for(capsys, "fitting ... 0 s\n")
        show_event({"event": "fitting", "member": "ials", "settings": {"weight": 5}, "seconds": 0.1})
        wait_for(capsys, "fitting ials weight=5 ... ")
        show_event({"event": "weighing", "members": ["ials"], "seconds": 0.2})
        wait_for(capsys, "choosing weights on the validation part ... ")


def test_a_long_refit_is_told_as_one(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with progress.progress_of(SETTINGS, validates=True) as show_event:
        show_event({**EVENTS[0], "refit": {"epochs": 2}})
        wait_for(capsys, "refit: epoch 1/2 ... ")


def test_short_steps_one_after_another_are_not_silent_for_long(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.5)
    monkeypatch.setattr(progress, "SHORT", 0.01)
    monkeypatch.setattr(progress.Heartbeat, "last_line", time.monotonic())
    shown, begin = "", time.monotonic()
    while "reading" not in shown:  # no step takes as long as the wait
        assert time.monotonic() - begin < 60
        with progress.busy("reading"):
            time.sleep(0.05)
        shown += capsys.readouterr().err


def test_the_innermost_of_nested_steps_is_told(capsys, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    with progress.busy("training"):
        wait_for(capsys, "training ... 0 s\n")
        with progress.busy("evaluating"):
            wait_for(capsys, "evaluating ... 0 s\n")
            capsys.readouterr()
            assert "training" not in wait_for(capsys, "evaluating ... ")
        wait_for(capsys, "training ... ")


def test_a_process_that_leaves_telling_to_others_is_silent():
    with progress.Heartbeat(lambda: "training", wait=300.0):
        [beat] = progress.Heartbeat.open
        progress.Heartbeat.leave_to_others()
        beat.thread.join(60)
        assert not beat.thread.is_alive()
    assert progress.Heartbeat.open == []


def test_a_short_step_is_not_told(capsys):
    with progress.busy("reading"):
        pass
    assert capsys.readouterr().err == ""


def test_a_download_is_one_line_per_file(capsys):
    with progress.download_progress() as report:
        for done in (0, 500, 1000):
            report("a.zip", done, 1000)
        report("b.zip", 10, None)
    assert capsys.readouterr().err.splitlines() == ["fetching a.zip (1,000 bytes)", "fetching b.zip"]


def test_a_download_on_a_terminal(terminal, capsys):
    with progress.download_progress() as report:
        report("a.zip", 1000, 1000)
    assert "a.zip" in terminal.getvalue()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["recommend", "--user", "u1"],
        ["similar", "--item", "2"],
        ["explain", "--user", "u1", "--item", "2"],
        ["evaluate"],
    ],
    ids=lambda words: words[0],
)
def test_a_run_that_takes_long_to_load_is_told(cli, finished, monkeypatch, words):
    from rankformer.runs import saved

    monkeypatch.setattr(saved, "load_run", slowly(saved.load_run))
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    outcome = cli(words[0], finished, *words[1:])
    assert outcome.code == 0, outcome.err
    assert f"loading {finished} ... 0 s" in outcome.err


def slowly(function):
    """Return a function that takes longer than the first line waits for."""

    def slow(*arguments, **options):
        time.sleep(0.2)
        return function(*arguments, **options)

    return slow


def test_a_command_is_told_whatever_it_is_doing(cli, finished, monkeypatch):
    from rankformer.scoring.recommender import Recommender

    monkeypatch.setattr(Recommender, "similar_items", slowly(Recommender.similar_items))
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    outcome = cli("similar", finished, "--item", "2")
    assert outcome.code == 0, outcome.err
    assert "rankformer similar ... 0 s\n" in outcome.err


def test_a_service_writes_its_own_log_and_nothing_else(cli, tmp_path, monkeypatch):
    from rankformer.runs import manifest

    monkeypatch.setattr(manifest, "read_manifest", slowly(manifest.read_manifest))
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER", 0.01)
    assert "missing" in cli("serve", tmp_path / "missing").error
