"""Cornac: the recommender in its experiments and its hyperparameter search."""

import numpy as np
import pytest
from cornac import Experiment
from cornac.data import Dataset
from cornac.eval_methods import BaseMethod
from cornac.hyperopt import Discrete, GridSearch
from cornac.metrics import NDCG, Recall
from cornac.models import EASE, MostPop, Recommender

from rankformer.adapters.cornac import RankformerRecommender

TESTED = {"Cornac": ("adapter", "cornac")}


def triplets(log, weights=None):
    weights = np.ones(len(log)) if weights is None else weights
    users, items = log.user_ids.take(log.users).to_pylist(), log.item_ids.take(log.items).to_pylist()
    return list(zip(users, items, weights.tolist(), strict=True))


@pytest.fixture(scope="module")
def method(parts):
    logs = {f"{name}_data": triplets(part) for name, part in zip(("train", "val", "test"), parts, strict=True)}
    return BaseMethod.from_splits(**logs, exclude_unknowns=True)


@pytest.fixture(scope="module")
def train_set(parts):
    return Dataset.build(triplets(parts.train))


def test_an_experiment_measures_it_beside_their_models(method):
    ours = RankformerRecommender("ease", name="ours", regularization=500, keep=None)
    models = [ours, EASE(lamb=500, name="theirs", verbose=False, seed=1), MostPop()]
    models.append(RankformerRecommender("blend", members="ease,item-knn", tune=False))
    experiment = Experiment(method, models, metrics=[NDCG(k=10), Recall(k=10)], save_dir=None)
    experiment.run()
    values = {result.model_name: result.metric_avg_results["NDCG@10"] for result in experiment.result}
    assert values["ours"] == pytest.approx(values["theirs"], abs=2e-3)
    assert min(values["ours"], values["Blend"]) > 1.5 * values["MostPop"]


def test_lists_are_those_of_the_model_itself(train_set, ease):
    model = RankformerRecommender("ease").fit(train_set)
    assert isinstance(model, Recommender)
    found = model.recommend("mira-001", k=6, remove_seen=True, train_set=train_set)
    assert found == ease.recommend(["mira-001"], 6).table["item_id"].to_pylist()
    whole = model.score(model.uid_map["mira-001"])
    assert model.score(model.uid_map["mira-001"], 3) == whole[3]
    assert whole.shape == (model.num_items,)


def test_a_fitted_model_is_used_as_it_is_where_it_is_not_trainable(train_set, ease):
    model = RankformerRecommender(ease, trainable=False).fit(train_set)
    assert model.fitted is ease
    assert RankformerRecommender(ease).fit(train_set).fitted is not ease
    found = model.recommend("mira-001", k=6, remove_seen=True, train_set=train_set)
    assert found == ease.recommend(["mira-001"], 6).table["item_id"].to_pylist()


def test_an_unknown_user_gets_popularity(train_set, parts):
    scores = RankformerRecommender("ease").fit(train_set).score(-1)
    counts = np.bincount(parts.train.items)
    assert sorted(scores.tolist()) == sorted(counts[counts > 0].tolist())


def test_the_validation_set_chooses_the_epoch(method):
    model = RankformerRecommender("mf", epochs=4, validate_every=2, embedding_dim=4)
    model.fit(method.train_set, method.val_set)
    assert any(event["event"] == "validation" for event in model.fitted.log)


def test_ratings_count_where_asked_for(parts):
    data = Dataset.build(triplets(parts.train, np.where(parts.train.items == 7, 99.0, 1.0)))
    for use in (True, False):
        model = RankformerRecommender("popularity", use_ratings=use).fit(data)
        assert (model.item_ids[int(np.argmax(model.score(0)))] == "book-008") is use


def test_their_grid_search_sets_our_hyperparameters(method):
    search = GridSearch(
        model=RankformerRecommender("ease", name="searched"),
        space=[Discrete("regularization", [1e7, 100.0])],
        metric=NDCG(k=10),
        eval_method=method,
    )
    search.fit(method.train_set, method.val_set)
    assert search.best_params == {"regularization": 100.0}
    assert search.best_model.fitted.settings.regularization == 100.0
