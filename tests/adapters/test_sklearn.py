"""scikit-learn: parameters, clones, grid search, and the estimator checks that apply to interactions as samples."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from rankformer.adapters.sklearn import RankformerEstimator
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.registry import MODELS

TESTED = {"scikit-learn": ("adapter", "scikit-learn", "sklearn")}


def pairs_of(log):
    return np.stack([log.user_ids.take(log.users).to_pylist(), log.item_ids.take(log.items).to_pylist()], axis=1)


@pytest.fixture(scope="module")
def pairs(parts):
    return pairs_of(parts.train)


def test_grid_search_chooses_a_hyperparameter_and_a_model(pairs):
    grid = [{"model": ["ease"], "regularization": [1e7, 100.0]}, {"model": ["popularity"]}]
    search = GridSearchCV(RankformerEstimator(score_metric="ndcg@10"), grid, cv=ShuffleSplit(2, random_state=0))
    search.fit(pairs)
    assert search.best_params_ == {"model": "ease", "regularization": 100.0}
    assert len(search.cv_results_["mean_test_score"]) == 3
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert len(search.best_estimator_.recommend([pairs[0, 0]], k=5)) == 5


def test_a_blend_is_cross_validated(pairs):
    blend = RankformerEstimator("blend", members="ease,item-knn", tune=False)
    assert (cross_val_score(blend, pairs, cv=ShuffleSplit(2, random_state=0)) > 0.1).all()


def test_parameters_go_in_come_out_and_are_cloned():
    estimator = RankformerEstimator("lightgcn", epochs=3)
    assert estimator.get_params() == {"model": "lightgcn", "score_metric": "ndcg@20", "epochs": 3}
    copy = clone(estimator.set_params(num_layers=1, score_metric="recall@5"))
    assert copy is not estimator
    assert copy.get_params() == {"model": "lightgcn", "score_metric": "recall@5", "epochs": 3, "num_layers": 1}
    assert clone(RankformerEstimator(MODELS["ease"](regularization=3))).model.settings.regularization == 3
    assert "epochs=3" in repr(copy)
    with pytest.raises(ConfigError, match="unknown setting 'layers'"):
        estimator.set_params(layers=2)
    assert "layers" not in estimator.get_params()


def test_score_is_our_metric(parts, pairs, ease):
    estimator = RankformerEstimator("ease", score_metric="recall@20").fit(pairs)
    expected = evaluate(ease, parts.test, metrics=["recall@20"]).metrics["recall@20"]
    assert estimator.score(pairs_of(parts.test)) == pytest.approx(expected, abs=1e-9)


def test_predictions_are_the_scores_of_the_lists(parts, pairs):
    estimator = RankformerEstimator("ease").fit(pd.DataFrame(pairs))
    table = estimator.recommend(["mira-001", "otto-002"], k=8, include_seen=True).to_pandas()
    assert estimator.predict(table[["user_id", "item_id"]]) == pytest.approx(table["score"].to_numpy(), rel=1e-5)
    strange = estimator.predict([["mira-001", "unknown"], ["nobody", "book-003"]])
    assert np.isnan(strange[0])
    assert strange[1] == (parts.train.items == 2).sum()


def test_y_has_the_weights(pairs):
    weights = np.where(pairs[:, 1] == "book-009", 80.0, 1.0)
    estimator = RankformerEstimator("popularity").fit(pairs, weights)
    assert estimator.recommend(["mira-001"], k=1, include_seen=True).table["item_id"].to_pylist() == ["book-009"]


def test_what_is_not_interactions_is_rejected():
    with pytest.raises(DataError, match=r"shape \(3, 4\); expected two columns"):
        RankformerEstimator("ease").fit(np.zeros((3, 4)))
    with pytest.raises(NotFittedError):
        RankformerEstimator("ease").predict([["a", "b"]])


def test_the_estimator_checks_that_apply_pass():
    """Most of their checks fit random features, which are no interactions: they meet the message that says so.

    Every check that fits nothing has to pass, and none may fail in another way.
    """
    results = check_estimator(RankformerEstimator("popularity"), on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    for name, error in failed.items():
        said = repr((error, error.__cause__, error.__context__))
        assert "expected two columns" in said or "holds fractions; ids are" in said, (name, error)
    assert passed >= {
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_estimator_cloneable",
        "check_estimators_unfitted",
        "check_do_not_raise_errors_in_init_or_set_params",
    }
