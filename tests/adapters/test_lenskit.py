"""LensKit: its own suite for components and scorers, its pipelines, batch and evaluation."""

import numpy as np
import pandas as pd
import pytest
from lenskit import batch, topn_pipeline
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.metrics import NDCG, RunAnalysis
from lenskit.pipeline import PipelineBuilder
from lenskit.splitting import SampleFrac, crossfold_users
from lenskit.testing import BasicComponentTests, ScorerTests, set_env_var
from lenskit.training import TrainingOptions

from rankformer.adapters.lenskit import RankformerScorer
from rankformer.models.registry import MODELS

TESTED = {"LensKit": ("adapter", "lenskit")}


@pytest.fixture(scope="session")
def ml_ratings(parts):
    """The demo's log in place of the MovieLens data that their suite reads; its ids are numbers as there."""
    log = parts.whole
    table = pd.DataFrame({"user_id": log.users.astype(np.int64), "item_id": log.items.astype(np.int64) + 1})
    table["rating"] = 1.0 + (table["user_id"] + table["item_id"]) % 5
    table["timestamp"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(len(table)), unit="m")
    return table.sample(frac=1.0, random_state=1, ignore_index=True)


@pytest.fixture(scope="session")
def ml_ds(ml_ratings):
    return from_interactions_df(ml_ratings)


@pytest.fixture
def ml_100k(ml_ratings):
    return ml_ratings


@pytest.fixture(autouse=True, scope="module")
def one_process():
    """Their batches in this process: others would take half a minute to load torch."""
    with set_env_var("LK_NUM_PROCS", "1"):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


class TestComponent(BasicComponentTests, ScorerTests):
    component = RankformerScorer
    config = RankformerScorer.validate_config({"model": "ease"})
    configs = ({"model": "lightgcn", "settings": {"epochs": 2}}, {"model": "blend", "use_ratings": True})
    can_score = "known"
    expected_ndcg = 0.2
    test_batch_prediction_accuracy = None  # scores are not ratings


class TestBlend(ScorerTests):
    component = RankformerScorer
    config = RankformerScorer.validate_config(
        {"model": "blend", "settings": {"members": "ease,item-knn", "tune": False}, "use_ratings": True}
    )
    expected_ndcg = 0.2
    test_batch_prediction_accuracy = None


class TestWithoutFoldIn(ScorerTests):
    component = RankformerScorer
    config = RankformerScorer.validate_config({"model": "mf", "settings": {"epochs": 40}})
    expected_ndcg = 0.1
    test_batch_prediction_accuracy = None


def trained(data, name="ease", **options):
    pipeline = topn_pipeline(RankformerScorer(model=name, **options), n=10)
    pipeline.train(data)
    return pipeline


def test_lists_are_those_of_the_model_itself(parts, ease):
    log = parts.train
    table = pd.DataFrame({"user_id": log.user_ids.take(log.users), "item_id": log.item_ids.take(log.items)})
    pipeline = trained(from_interactions_df(table))
    users = log.user_ids.ids.to_pylist()[:50]
    lists = batch.recommend(pipeline, users, n_jobs=1)
    expected = ease.recommend(users, 10).to_pandas().groupby("user_id")["item_id"].agg(list)
    assert {key.user_id: list(found.ids()) for key, found in lists} == expected.to_dict()


def test_their_evaluation_finds_it_ahead_of_popularity(ml_ds):
    split = next(crossfold_users(ml_ds, 3, SampleFrac(0.2, rng=1), rng=1))
    analysis, means = RunAnalysis(NDCG(10)), {}
    for name in ("ease", "popularity"):
        lists = batch.recommend(trained(split.train, name), split.test, n_jobs=1)
        means[name] = analysis.measure(lists, split.test).list_summary().loc["NDCG@10", "mean"]
    assert means["ease"] > 1.5 * means["popularity"] > 0


def test_a_fitted_model_scores_without_training(parts, ease):
    scorer = RankformerScorer.of(ease)
    scorer.train(None, TrainingOptions(retrain=False))
    items = parts.train.item_ids.ids.to_pylist()
    scored = scorer(query="mira-001", items=ItemList(items)).scores()
    best = np.array(items)[np.argsort(-scored, kind="stable")]
    assert best[:5].tolist() == ease.recommend(["mira-001"], 5, include_seen=True).table["item_id"].to_pylist()


def test_a_history_without_a_user_is_folded_in_or_answered_by_popularity(parts, ease):
    items = parts.train.item_ids.ids.to_pylist()
    query = RecQuery(user_items=ItemList(items[:3]))
    scored = RankformerScorer.of(ease)(query=query, items=ItemList(items)).scores("pandas", index="ids")
    expected = ease.recommend(histories={0: items[:3]}, k=5).table["item_id"].to_pylist()
    assert scored.drop(items[:3]).nlargest(5).index.tolist() == expected
    plain = MODELS["mf"](epochs=1, embedding_dim=4).fit(parts.train)
    scored = RankformerScorer.of(plain)(query=query, items=ItemList(items)).scores()
    assert scored.tolist() == np.bincount(parts.train.items, minlength=len(items)).tolist()


def test_items_that_the_model_does_not_know_have_no_score(ease):
    scores = RankformerScorer.of(ease)(query="mira-001", items=ItemList(["book-001", "unknown"])).scores()
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])


def test_ratings_count_where_asked_for(ml_ds, ml_ratings):
    sums, counts = (ml_ratings.groupby("item_id")["rating"].agg(how) for how in ("sum", "count"))
    for use, expected in ((True, sums), (False, counts)):
        pipeline = trained(ml_ds, "popularity", use_ratings=use)
        scored = pipeline.run("scorer", query=-1, items=ItemList(expected.index.to_numpy()))
        assert scored.scores().tolist() == expected.tolist()


def test_seed_and_device_come_from_the_training_options(ml_ds):
    settings = {"epochs": 1, "embedding_dim": 4}
    seeds = []
    for rng, more in ((1, {}), (1, {}), (2, {}), (2, {"seed": 5})):
        scorer = RankformerScorer(model="mf", settings={**settings, **more})
        scorer.train(ml_ds, TrainingOptions(rng=rng, device="cpu"))
        seeds.append(scorer.model.seed)
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[3] == 5


def test_a_pipeline_is_written_and_built_again(ml_ds):
    config = trained(ml_ds, "ease", settings={"regularization": 30.0}).config
    again = PipelineBuilder.from_config(config).build()
    assert again.component("scorer").config.settings == {"regularization": 30.0}


def test_a_scorer_that_is_not_trained_says_so():
    with pytest.raises(RuntimeError, match="not trained"):
        RankformerScorer(model="ease")(query=1, items=ItemList([1]))
