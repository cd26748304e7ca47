"""The training log as a file, and what it says of a training."""

import json

import pytest

from rankformer.runs.training_log import LOG, TrainingHistory, TrainingLog, history_of, read_log

EVENTS = [
    {"event": "epoch", "epoch": 1, "loss": 0.7, "seconds": 1.0},
    {"event": "epoch", "epoch": 2, "loss": 0.6, "seconds": 3.0},
    {"event": "validation", "epoch": 2, "ndcg@20": 0.5, "recall@20": 0.1, "best": True, "seconds": 10.0},
    {"event": "epoch", "epoch": 3, "loss": 0.5, "seconds": 14.0},
    {"event": "validation", "epoch": 3, "ndcg@20": 0.4, "recall@20": 0.2, "best": False, "seconds": 20.0},
]


def test_events_are_in_the_file_before_they_are_told(tmp_path):
    told = []
    log = TrainingLog(tmp_path / "run" / LOG, lambda event: told.append(read_log(tmp_path / "run")[-1]))
    for event in EVENTS:
        log.append(event)
    assert told == log.events == read_log(tmp_path / "run") == EVENTS
    assert log.sync() == 5


def test_without_a_path_events_stay_in_memory():
    log = TrainingLog()
    log.append(EVENTS[0])
    log.rewind(0)
    assert (log.sync(), log.events) == (1, EVENTS[:1])


def test_rewinding_keeps_the_first_events_and_drops_half_a_line(tmp_path):
    lines = "".join(json.dumps(event) + "\n" for event in EVENTS[:3])
    (tmp_path / LOG).write_text(lines + '{"event": "ep')
    log = TrainingLog(tmp_path / LOG)
    log.rewind(2)
    assert log.events == read_log(tmp_path) == EVENTS[:2]


def test_a_folder_without_a_log_has_no_events(tmp_path):
    assert read_log(tmp_path) == []
    assert history_of([]) == TrainingHistory()


@pytest.mark.parametrize(("metric", "values"), [(None, (0.5, 0.4)), ("recall@20", (0.1, 0.2))])
def test_the_history_of_a_training(metric, values):
    """Epochs took 1, 2 and 4 seconds; the validation between them is not theirs."""
    assert history_of(EVENTS, metric) == TrainingHistory(
        epochs=3,
        best_epoch=2,
        seconds=20.0,
        seconds_to_best=10.0,
        seconds_per_epoch=2.0,
        validations=dict(zip((2, 3), values, strict=True)),
    )


def test_without_a_validation_the_last_epoch_is_the_best():
    found = history_of(EVENTS[:2])
    assert (found.best_epoch, found.seconds_to_best, found.validations) == (2, 3.0, {})


def test_the_history_of_a_method_that_is_solved():
    log = [{"event": "solved", "seconds": 2.0}, {"event": "validation", "epoch": 1, "ndcg@20": 0.5, "seconds": 3.0}]
    assert history_of(log) == TrainingHistory(seconds=3.0, seconds_to_best=2.0, validations={1: 0.5})
