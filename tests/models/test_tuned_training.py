"""`tune=true` of a model that is trained: a search, then a training with what it chose; stopped and continued."""

import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer import MatrixFactorization, load_model
from rankformer.runs.training_log import history_of

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(40, 25, 220, repeats=20)
VALID = repeated_log(40, 25, 60, seed=9)
SETTINGS = {"embedding_dim": 4, "epochs": 8, "validate_every": 2, "learning_rate": 0.1, "patience": 2}


def make(**changes):
    return MatrixFactorization(**{**SETTINGS, "tune": True, **changes})


def trials_of(model):
    return [event for event in model.log if event["event"] == "trial"]


def same(one, other):
    return all(torch.equal(one.parameters()[name], value) for name, value in other.parameters().items())


def test_the_training_after_the_search_is_the_one_with_the_settings_that_it_chose(tmp_path):
    model = make().fit(LOG, VALID)
    trials = trials_of(model)
    assert [trial["settings"] for trial in trials] == [{}, {"l2": "0.25*auto"}, {"l2": "4*auto"}]
    best = max(trials, key=lambda trial: trial["value"])
    assert len({trial["value"] for trial in trials}) > 1  # so there is something to choose
    given = make(tune=False, **best["settings"]).fit(LOG, VALID)
    assert same(model, given)
    assert model.settings.l2 == best["settings"].get("l2", "auto")
    [chosen] = [event for event in model.log if event["event"] == "chosen"]
    assert chosen["settings"] == {"l2": model.settings.l2}
    assert history_of(model.log).best_epoch == history_of(given.log).best_epoch
    seconds = [event["seconds"] for event in model.log]
    assert seconds == sorted(seconds)
    model.save(tmp_path / "run")
    assert load_model(tmp_path / "run").settings == model.settings
    assert not trials_of(model.refitted(LOG))


def test_with_fewer_epochs_first_where_these_are_not_given():
    model = MatrixFactorization(embedding_dim=4, tune=True, learning_rate=0.1).fit(LOG, VALID)
    settings = [trial["settings"] for trial in trials_of(model)]
    assert [each.get("epochs") for each in settings] == [75, 75, 75, None, *[None] * (len(settings) - 4)]
    assert model.settings.epochs == 300


@pytest.mark.parametrize("changes", [{"l2": 0.01}, {"tune": False}], ids=str)
def test_nothing_is_searched_where_it_is_given_or_not_wanted(changes):
    assert not trials_of(make(**changes).fit(LOG, VALID))


def test_nothing_is_searched_without_a_validation_part():
    assert make().fit(LOG).log[0]["event"] == "epoch"


class Stopped(Exception):
    """Where a run was stopped."""


@pytest.mark.parametrize("moment", range(0, 15, 2))
def test_a_search_or_training_that_was_stopped_continues_to_the_same_model(tmp_path, moment):
    whole, seen = make().fit(LOG, VALID), []

    def stop(event):
        seen.append(event)
        if len(seen) > moment:
            raise Stopped

    with pytest.raises(Stopped):
        make().fit(LOG, VALID, run_folder=tmp_path, on_event=stop)
    model = make().fit(LOG, VALID, run_folder=tmp_path, resume=True)
    assert same(model, whole)
    assert model.settings == whole.settings
    kept = [{**event, "seconds": 0} for event in model.log]
    assert kept == [{**event, "seconds": 0} for event in whole.log]
    seconds = [event["seconds"] for event in model.log]
    assert seconds == sorted(seconds)


def test_a_trial_that_diverges_is_not_taken(monkeypatch):
    monkeypatch.setattr(MatrixFactorization, "ladder", {"learning_rate": (0.1, 1e30)})
    model = MatrixFactorization(embedding_dim=4, epochs=4, tune=True, initialization="normal").fit(LOG, VALID)
    assert model.settings.learning_rate < 1
    assert 1e30 not in [trial["settings"].get("learning_rate") for trial in trials_of(model)]
