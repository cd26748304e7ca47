import pytest

from rankformer.evaluation.evaluator import evaluate
from rankformer.models.registry import model_class
from rankformer.research.results import Computation, ResultStore, load_parts, unpack
from rankformer.research.runner import Conditions, compute

from .conftest import TINY


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "stored")


def trained(data, store, name, settings, seed=0):
    return compute(Computation("training", settings, seed, name, data, name), store, Conditions())


def test_the_result_is_what_evaluating_the_model_gives(data, store):
    parts = load_parts(data.source)
    result = trained(data, store, "mf", TINY["mf"])
    alone = model_class("mf")(seed=0, **TINY["mf"]).fit(parts.train, parts.valid)
    wanted = evaluate(alone, parts.test, seed=0)
    assert result["metrics"] == wanted.metrics
    assert result["protocol"] == wanted.to_dict()["protocol"]
    assert unpack(result["per_user"]["ndcg@20"]).mean() == pytest.approx(wanted.metrics["ndcg@20"], abs=1e-7)
    assert result["failed"] is None
    assert list(result["history"]["validations"]) == ["2", "4"]
    assert result["history"]["epochs"] == 4


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mf", {"learning_rate": 3e18, "schedule": "constant"}),
        ("dualvae", {"learning_rate": 1e10, "likelihood": "gaussian", "activation": "relu"}),  # not one vector per user
    ],
)
def test_a_training_that_fails_counts_with_its_best_validation(data, store, name, settings):
    """So large a rate makes the second epoch overflow, after a validation."""
    parts = load_parts(data.source)
    settings = {"embedding_dim": 4, "epochs": 50, "validate_every": 1, **settings}
    result = trained(data, store, name, settings)
    assert "not finite" in result["failed"]
    validations = result["history"]["validations"]
    best = max(validations, key=validations.__getitem__)
    stopped = model_class(name)(seed=0, **{**settings, "epochs": int(best)}).fit(parts.train, parts.valid)
    assert result["metrics"] == evaluate(stopped, parts.test).metrics


def test_one_that_fails_before_any_validation_has_no_metrics(data, store):
    settings = {**TINY["mf"], "epochs": 50, "validate_every": 50, "learning_rate": 3e18}
    result = trained(data, store, "mf", settings)
    assert "not finite" in result["failed"]
    assert (result["metrics"], result["per_user"]) == (None, {})


def test_a_damaged_checkpoint_means_starting_again(data, store, tmp_path):
    work = store.work_folder(Computation("training", TINY["mf"], 0, "mf", data))
    (work / "checkpoint").mkdir(parents=True)
    (work / "checkpoint" / "latest.json").write_text("{}")
    result = trained(data, store, "mf", TINY["mf"])
    undisturbed = trained(data, ResultStore(tmp_path / "other"), "mf", TINY["mf"])
    assert result["metrics"] == undisturbed["metrics"]


@pytest.mark.parametrize("name", ["popularity", "ease"])
def test_a_method_without_epochs_has_a_result_too(data, store, name):
    result = trained(data, store, name, {})
    assert result["metrics"]["ndcg@20"] > 0
    assert result["history"]["seconds"] > 0
    assert result["history"]["seconds_per_epoch"] is None


def test_a_model_of_another_package_is_named_by_its_class(data, store):
    named = trained(data, store, "rankformer.models.matrix_factorization:MatrixFactorization", TINY["mf"])
    assert named["metrics"] == trained(data, store, "mf", TINY["mf"])["metrics"]
