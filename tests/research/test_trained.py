import numpy as np
import pytest

from rankformer.evaluation.evaluator import evaluate
from rankformer.research.cells import load_parts
from rankformer.research.trained import build_model, course_of, pack, train_and_evaluate, unpack

from .conftest import TINY


def test_numbers_of_users_survive_being_text():
    values = np.random.default_rng(0).random(100)
    assert np.abs(unpack(pack(values)) - values).max() < 1e-7
    with pytest.raises(ValueError):
        unpack("not base64!")


def test_a_course_counts_epochs_without_their_validations():
    log = [
        {"event": "epoch", "epoch": 1, "seconds": 1.0},
        {"event": "epoch", "epoch": 2, "seconds": 2.0},
        {"event": "validation", "epoch": 2, "best": True, "seconds": 12.0},
        {"event": "epoch", "epoch": 3, "seconds": 13.0},
        {"event": "validation", "epoch": 3, "best": False, "seconds": 23.0},
    ]
    assert course_of(log, 99.0) == {
        "epochs": 3,
        "best_epoch": 2,
        "seconds_per_epoch": 1.0,
        "seconds": 23.0,
        "seconds_to_best": 12.0,
    }


def test_without_epochs_the_clock_on_the_wall_counts():
    course = course_of([], 2.5)
    assert (course["epochs"], course["seconds_per_epoch"], course["seconds_to_best"]) == (0, None, 2.5)
    solved = [{"event": "solved", "seconds": 1.5}, {"event": "validation", "epoch": 1, "best": True, "seconds": 9.0}]
    assert course_of(solved, 99.0)["seconds_to_best"] == 1.5


def test_the_result_is_what_evaluating_the_model_gives(card, tmp_path):
    parts = load_parts(card.source)
    result = train_and_evaluate(parts, build_model("mf", TINY["mf"], 0, "cpu"), tmp_path / "work")
    alone = build_model("mf", TINY["mf"], 0, "cpu").fit(parts.train, parts.valid)
    wanted = evaluate(alone, parts.test, seed=0)
    assert result["metrics"] == wanted.metrics
    assert result["protocol"] == wanted.to_dict()["protocol"]
    assert unpack(result["per_user"]["ndcg@20"]).mean() == pytest.approx(wanted.metrics["ndcg@20"], abs=1e-7)
    assert result["failed"] is None
    assert [event["epoch"] for event in result["validations"]] == [2, 4]


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("mf", {"learning_rate": 3e18, "schedule": "constant"}),
        ("dualvae", {"learning_rate": 1e10, "likelihood": "gaussian", "activation": "relu"}),  # not one vector per user
    ],
)
def test_a_training_that_breaks_off_counts_with_its_best_validation(card, tmp_path, name, knobs):
    """So large a rate makes the second epoch overflow, after a validation."""
    parts = load_parts(card.source)
    settings = {"embedding_dim": 4, "epochs": 50, "validate_every": 1, **knobs}
    result = train_and_evaluate(parts, build_model(name, settings, 0, "cpu"), tmp_path / "work")
    assert "not finite" in result["failed"]
    best = max(result["validations"], key=lambda event: event["ndcg@20"])
    stopped = build_model(name, {**settings, "epochs": best["epoch"]}, 0, "cpu").fit(parts.train, parts.valid)
    assert result["metrics"] == evaluate(stopped, parts.test).metrics


def test_one_that_breaks_off_before_any_validation_has_no_metrics(card, tmp_path):
    settings = {**TINY["mf"], "epochs": 50, "validate_every": 50, "learning_rate": 3e18}
    result = train_and_evaluate(load_parts(card.source), build_model("mf", settings, 0, "cpu"), tmp_path / "work")
    assert "not finite" in result["failed"]
    assert (result["metrics"], result["per_user"]) == (None, {})


def test_a_damaged_checkpoint_means_beginning_again(card, tmp_path):
    parts, work = load_parts(card.source), tmp_path / "work"
    (work / "checkpoint").mkdir(parents=True)
    (work / "checkpoint" / "latest.json").write_text("{}")
    result = train_and_evaluate(parts, build_model("mf", TINY["mf"], 0, "cpu"), work)
    undisturbed = train_and_evaluate(parts, build_model("mf", TINY["mf"], 0, "cpu"), tmp_path / "other")
    assert result["metrics"] == undisturbed["metrics"]


@pytest.mark.parametrize("name", ["popularity", "ease"])
def test_a_method_without_epochs_has_a_result_too(card, tmp_path, name):
    result = train_and_evaluate(load_parts(card.source), build_model(name, {}, 0, "cpu"), tmp_path / "work")
    assert result["metrics"]["ndcg@20"] > 0
    assert result["course"]["seconds"] > 0
