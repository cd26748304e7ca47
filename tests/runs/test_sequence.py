"""Fit, evaluate, save as one sequence; what happens to trainings that fail and checkpoints that cannot be used."""

import pytest
import torch
from tests.runs.trainings import PARTS, stopped_at

from rankformer import load_model
from rankformer.data.interactions import Parts
from rankformer.data.source import DataSource
from rankformer.errors import RunFolderError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.ials import IALS
from rankformer.models.rankformer import Rankformer, RankformerNetwork
from rankformer.runs.folder import RunFolder, State
from rankformer.runs.manifest import read_manifest
from rankformer.runs.sequence import fit_and_evaluate, train_run
from rankformer.runs.training_log import read_log

SETTINGS = {"embedding_dim": 4, "num_layers": 1, "epochs": 6, "validate_every": 2, "seed": 5}


def without_clock(log):
    return [{name: value for name, value in event.items() if name != "seconds"} for event in log]


def lists_of(outcome):
    return outcome.recommender.recommend(k=5).table


@pytest.fixture(scope="module")
def undisturbed():
    return fit_and_evaluate(Rankformer(**SETTINGS), PARTS)


def test_it_is_a_fit_and_an_evaluation(undisturbed):
    model = Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid)
    expected = evaluate(model, PARTS.test, mask="train", seed=5)
    assert undisturbed.evaluation.metrics == expected.metrics
    assert undisturbed.evaluation.protocol == expected.protocol
    assert without_clock(undisturbed.log) == without_clock(model.log)
    assert lists_of(undisturbed) == model.recommend(k=5).table
    assert undisturbed.failure is None
    assert undisturbed.history.epochs == 6
    assert set(undisturbed.history.validations) == {2, 4, 6}
    assert undisturbed.history.best_epoch in {2, 4, 6}


def test_without_a_test_part_nothing_is_evaluated():
    outcome = fit_and_evaluate(IALS(embedding_dim=2), Parts(PARTS.train, PARTS.valid, PARTS.test.rows([])))
    assert outcome.evaluation is None
    assert outcome.recommender is not None
    assert outcome.history.epochs == 0


def test_a_stage_is_open_while_it_evaluates_and_saves(tmp_path):
    stages = []

    class Stage:
        def __init__(self, name):
            stages.append(name)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    train_run(IALS(embedding_dim=2), DataSource(source="clicks.csv"), PARTS, tmp_path / "run", stage=Stage)
    assert stages == ["evaluating", "saving"]


def test_a_run_is_fitted_evaluated_and_saved_without_its_checkpoint(tmp_path, undisturbed):
    outcome, data = train_run(Rankformer(**SETTINGS), DataSource(source="clicks.csv"), PARTS, tmp_path / "run")
    assert RunFolder(tmp_path / "run").state is State.FINISHED
    assert not (tmp_path / "run" / "checkpoint").exists()
    manifest = read_manifest(tmp_path / "run")
    assert manifest["metrics"] == outcome.evaluation.metrics == undisturbed.evaluation.metrics
    assert data.items() <= manifest["data"].items()
    assert (data["fingerprint"], data["users"], data["train_interactions"]) == (PARTS.fingerprint, 15, 60)
    assert data["source"]["source"].endswith("/clicks.csv")
    assert load_model(tmp_path / "run").recommend(k=5).table == lists_of(undisturbed)


def fail_from(monkeypatch, step):
    """Make the loss NaN from the given step on, counted from 1."""
    real, calls = RankformerNetwork.loss, []

    def loss(self, graph, batch):
        calls.append(step)
        value = real(self, graph, batch)
        return value * torch.nan if len(calls) >= step else value

    monkeypatch.setattr(RankformerNetwork, "loss", loss)


def test_a_training_that_fails_raises(tmp_path, monkeypatch):
    fail_from(monkeypatch, 5)
    with pytest.raises(TrainingError):
        fit_and_evaluate(Rankformer(**SETTINGS), PARTS, folder=tmp_path)


def test_the_best_validation_before_a_failure_is_kept(tmp_path, monkeypatch):
    """Which is what a training of four epochs would have kept, the learning rate being constant."""
    constant = {**SETTINGS, "schedule": "constant"}
    expected = fit_and_evaluate(Rankformer(**{**constant, "epochs": 4}), PARTS)
    fail_from(monkeypatch, 5)
    outcome = fit_and_evaluate(Rankformer(**constant), PARTS, folder=tmp_path, keep_best_on_failure=True)
    assert "step 5" in outcome.failure
    assert outcome.history.validations == expected.history.validations
    assert outcome.history.best_epoch == expected.history.best_epoch
    assert outcome.evaluation.metrics == expected.evaluation.metrics
    assert lists_of(outcome) == lists_of(expected)
    assert outcome.log == read_log(tmp_path)


def test_a_failure_before_the_first_validation_leaves_nothing_to_evaluate(tmp_path, monkeypatch):
    fail_from(monkeypatch, 1)
    outcome = fit_and_evaluate(Rankformer(**SETTINGS), PARTS, folder=tmp_path, keep_best_on_failure=True)
    assert (outcome.recommender, outcome.evaluation) == (None, None)
    assert outcome.failure


def test_without_a_folder_a_failure_leaves_nothing_to_evaluate(monkeypatch):
    fail_from(monkeypatch, 5)
    outcome = fit_and_evaluate(Rankformer(**SETTINGS), PARTS, keep_best_on_failure=True)
    assert (outcome.recommender, outcome.evaluation, outcome.log) == (None, None, [])
    assert outcome.failure


@pytest.fixture
def unfinished(tmp_path):
    stopped_at(5, fit_and_evaluate, Rankformer(**SETTINGS), PARTS, folder=tmp_path / "run")
    return tmp_path / "run"


def test_a_resumed_training_ends_as_if_never_disturbed(unfinished, undisturbed):
    epochs = []
    outcome = fit_and_evaluate(
        Rankformer(**SETTINGS),
        PARTS,
        folder=unfinished,
        resume=True,
        on_event=lambda event: epochs.append(event["epoch"]),
    )
    assert min(epochs) == 5
    assert lists_of(outcome) == lists_of(undisturbed)
    assert without_clock(outcome.log) == without_clock(undisturbed.log)


def flip_tensors(folder):
    [path] = (folder / "checkpoint").glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def cut_pointer(folder):
    path = folder / "checkpoint" / "latest.json"
    path.write_bytes(path.read_bytes()[:50])


def cut_log(folder):
    (folder / "log.jsonl").write_text('{"event": "ep')


@pytest.mark.parametrize("damage", [flip_tensors, cut_pointer, cut_log])
def test_a_damaged_checkpoint_raises_or_restarts(unfinished, undisturbed, damage):
    damage(unfinished)
    with pytest.raises((RunFolderError, ValueError)):
        fit_and_evaluate(Rankformer(**SETTINGS), PARTS, folder=unfinished, resume=True)
    outcome = fit_and_evaluate(Rankformer(**SETTINGS), PARTS, folder=unfinished, resume=True, restart_if_damaged=True)
    assert lists_of(outcome) == lists_of(undisturbed)
    assert without_clock(outcome.log) == without_clock(undisturbed.log) == without_clock(read_log(unfinished))


def test_a_checkpoint_of_other_settings_restarts_too(unfinished):
    model = Rankformer(**{**SETTINGS, "tau": 0.1})
    with pytest.raises(RunFolderError, match="its settings"):
        fit_and_evaluate(model, PARTS, folder=unfinished, resume=True)
    epochs = []
    outcome = fit_and_evaluate(
        model,
        PARTS,
        folder=unfinished,
        resume=True,
        restart_if_damaged=True,
        on_event=lambda event: epochs.append(event["epoch"]),
    )
    assert min(epochs) == 1
    assert outcome.history.epochs == 6


def test_a_finished_run_is_not_taken_for_a_damaged_checkpoint(tmp_path):
    Rankformer(**SETTINGS).fit(PARTS.train).save(tmp_path)
    with pytest.raises(RunFolderError, match="already holds a finished run"):
        fit_and_evaluate(Rankformer(**SETTINGS), PARTS, folder=tmp_path, resume=True, restart_if_damaged=True)
    load_model(tmp_path)
