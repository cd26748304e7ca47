"""Fit, evaluate, save as one sequence; what happens to trainings that fail and checkpoints that cannot be used."""

import pytest
import torch
from tests.runs.trainings import PARTS, Stop, stopped_at

from rankformer import load_model
from rankformer.data.parts import Parts
from rankformer.data.source import DataSource
from rankformer.errors import DataError, RunFolderError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.ease import EASE
from rankformer.models.ials import IALS
from rankformer.models.rankformer import Rankformer, RankformerNetwork
from rankformer.runs.folder import RunFolder, State
from rankformer.runs.manifest import read_manifest
from rankformer.runs.saved import load_run
from rankformer.runs.sequence import fit_and_evaluate, train_run
from rankformer.runs.training_log import read_log

SETTINGS = {"embedding_dim": 4, "num_layers": 1, "epochs": 6, "validate_every": 2, "seed": 5}


def without_clock(log):
    return [{name: value for name, value in event.items() if name != "seconds"} for event in log]


def lists_of(outcome):
    return outcome.recommender.recommend(k=5, mask="train").table


@pytest.fixture(scope="module")
def undisturbed():
    return fit_and_evaluate(Rankformer(**SETTINGS), PARTS)


def test_it_is_a_fit_and_an_evaluation(undisturbed):
    model = Rankformer(**SETTINGS).fit(PARTS.train, PARTS.valid)
    expected = evaluate(model, PARTS.test, mask="train", seed=5)
    assert undisturbed.evaluation.metrics == expected.metrics
    assert undisturbed.evaluation.protocol == expected.protocol
    assert without_clock(undisturbed.log) == without_clock(model.log)
    assert lists_of(undisturbed) == model.recommend(k=5, mask="train").table
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
    assert load_model(tmp_path / "run").recommend(k=5, mask="train").table == lists_of(undisturbed)


def known_pairs():
    return {pair for part in PARTS for pair in zip(part.users.tolist(), part.items.tolist(), strict=True)}


def listed_pairs(lists):
    return set(zip(lists["user_id"].to_pylist(), lists["item_id"].to_pylist(), strict=True))


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("model_class", [IALS, EASE, Rankformer])
def test_no_list_of_a_saved_run_holds_a_known_interaction(tmp_path, model_class, refit):
    settings = SETTINGS if model_class is Rankformer else {}
    train_run(model_class(**settings), DataSource(source="clicks.csv"), PARTS, tmp_path / "run", refit=refit)
    model = load_model(tmp_path / "run")
    assert not listed_pairs(model.recommend(k=20).table) & known_pairs()
    masked = model.recommend(k=20, mask="train").table
    assert bool(listed_pairs(masked) & known_pairs()) is not refit
    assert len(model.recommender.history) == (84 if refit else 60)


class TestRefit:
    """The model that is saved has learned from everything, for as many epochs as validation chose before."""

    CONSTANT = SETTINGS | {"schedule": "constant"}

    def run(self, folder, **options):
        return train_run(Rankformer(**SETTINGS), DataSource(source="clicks.csv"), PARTS, folder, refit=True, **options)

    def test_the_metrics_are_those_before_and_the_model_is_the_one_after(self, tmp_path, undisturbed):
        chosen = undisturbed.history.best_epoch
        outcome, _ = self.run(tmp_path / "run")
        manifest, loaded = read_manifest(tmp_path / "run"), load_model(tmp_path / "run")
        assert manifest["metrics"] == outcome.evaluation.metrics == undisturbed.evaluation.metrics
        refit = manifest["refit"]
        assert (refit["interactions"], refit["epochs"], refit["metrics"]) == (84, chosen, "before the refit")
        assert loaded.choices() == {"epochs": chosen}
        expected = Rankformer(**SETTINGS).fit(PARTS.whole, choices={"epochs": chosen})
        assert torch.equal(loaded.embeddings.items, expected.embeddings.items)
        assert not torch.equal(loaded.embeddings.items, undisturbed.recommender.embeddings.items)
        assert lists_of(outcome) == lists_of(undisturbed)
        assert without_clock(read_log(tmp_path / "run")) == without_clock(undisturbed.log)

    def test_an_epoch_of_the_refit_is_what_it_was_in_the_fit(self):
        """The schedule runs as far as it did; without a decay, fewer epochs are all that is left of it."""
        whole = PARTS.whole
        held = Rankformer(**self.CONSTANT).fit(whole, choices={"epochs": 4})
        short = Rankformer(**{**self.CONSTANT, "epochs": 4}).fit(whole)
        assert torch.equal(held.embeddings.items, short.embeddings.items)
        decaying = Rankformer(**SETTINGS, schedule="cosine").fit(whole)
        held = Rankformer(**SETTINGS, schedule="cosine").fit(whole, choices={"epochs": 4})
        assert [event["loss"] for event in held.log] == [event["loss"] for event in decaying.log][:4]

    def test_a_method_that_is_solved_is_solved_again(self, tmp_path):
        train_run(EASE(), DataSource(source="clicks.csv"), PARTS, tmp_path / "run", refit=True)
        chosen = EASE().fit(PARTS.train, PARTS.valid).settings.regularization
        assert chosen != EASE().settings.regularization, "found on the validation part"
        loaded = load_model(tmp_path / "run")
        assert loaded.settings.regularization == chosen
        assert loaded.recommend(k=5).table == EASE(regularization=chosen).fit(PARTS.whole).recommend(k=5).table
        assert read_manifest(tmp_path / "run")["refit"]["interactions"] == 84

    @pytest.mark.parametrize("epoch", [1, 3])
    def test_a_refit_that_was_stopped_is_resumed(self, tmp_path, epoch):
        settings, seen = {**SETTINGS, "validate_every": 1, "seed": 0}, []  # the sixth epoch is the best

        def stop(event):
            if event.get("refit") and event["epoch"] == epoch:
                raise Stop

        source, folder = DataSource(source="clicks.csv"), tmp_path / "run"
        with pytest.raises(Stop):
            train_run(Rankformer(**settings), source, PARTS, folder, refit=True, on_event=stop)
        assert RunFolder(folder).state is State.UNFINISHED
        assert RunFolder(folder).is_refitting
        train_run(Rankformer(**settings), source, PARTS, folder, refit=True, resume=True, on_event=seen.append)
        assert all(event.get("refit") for event in seen), "the fit was finished and must not train again"
        assert min(event["epoch"] for event in seen) == epoch
        assert not (folder / "checkpoint").exists()
        other = tmp_path / "undisturbed"
        train_run(Rankformer(**settings), source, PARTS, other, refit=True)
        first, second = load_model(folder), load_model(other)
        assert torch.equal(first.embeddings.users, second.embeddings.users)
        assert read_manifest(folder)["metrics"] == read_manifest(other)["metrics"]

    def test_a_fit_that_starts_again_forgets_the_refit_of_the_old_one(self, tmp_path):
        def stop(event):
            if event.get("refit"):
                raise Stop

        with pytest.raises(Stop):
            self.run(tmp_path / "run", on_event=stop)
        RunFolder(tmp_path / "run").clear()
        assert not (tmp_path / "run").exists()

    def test_without_other_parts_there_is_nothing_to_refit_on(self, tmp_path):
        nothing = PARTS.test.rows([])
        parts = Parts(PARTS.train, nothing, nothing)
        train_run(IALS(embedding_dim=2), DataSource(source="x.csv"), parts, tmp_path / "run", refit=True)
        assert "refit" not in read_manifest(tmp_path / "run")

    def test_what_was_evaluated_stays_in_the_run(self, tmp_path):
        outcome, _ = self.run(tmp_path / "run")
        run = load_run(tmp_path / "run")
        train, test = (run.recommender.known.rows(run.recommender.known.labels == label) for label in (0, 2))
        again = evaluate(run.recommender, test, train=train, lists=run.lists)
        assert again.metrics == outcome.evaluation.metrics
        with pytest.raises(DataError, match="refitted on the whole log"):
            evaluate(run.recommender, test)


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
