"""One trained model measured by five libraries: our numbers to 1e-6, or the difference that docs/adapters.md states."""

import ir_measures
import numpy as np
import pandas as pd
import pytest
import ranx
from ir_measures import AP, RR, P, R, Success, nDCG
from lenskit import batch, topn_pipeline
from lenskit import metrics as lenskit_metrics
from lenskit.data import ItemListCollection, from_interactions_df
from lenskit.metrics.ranking import AveragePrecision
from lenskit.testing import set_env_var
from rectools import Columns
from rectools import metrics as rectools_metrics
from rectools.dataset import Dataset
from tests.adapters.conftest import small_settings

from rankformer.adapters.lenskit import RankformerScorer
from rankformer.adapters.rectools import RankformerModel
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.registry import MODELS

TESTED = {"ir-measures": ("metrics", "ir_measures"), "ranx": ("metrics", "ranx")}
K = 5  # below the number of test items of some users, so that definitions differ
NAMES = ("ndcg", "recall", "recall_capped", "precision", "hit_rate", "mrr", "map")


@pytest.fixture(scope="module", params=["ease", "blend"])
def model(request, parts):
    return MODELS[request.param](**small_settings(request.param)).fit(parts.train)


@pytest.fixture(scope="module")
def ours(model, parts):
    return evaluate(model, parts.test, metrics=[f"{name}@{K}" for name in NAMES], mask="train")


@pytest.fixture(scope="module")
def expected(ours):
    return {name: ours.metrics[f"{name}@{K}"] for name in NAMES}


@pytest.fixture(scope="module")
def per_user(ours, parts):
    """Our values of each user, and how many test items they have."""
    values = {name: ours.per_user[f"{name}@{K}"] for name in NAMES}
    sizes = np.bincount(parts.test.users, minlength=parts.test.num_users)[ours.users]
    assert (sizes > K).any()
    assert (sizes < K).any()
    return values, sizes


def frame(part):
    return pd.DataFrame(
        {"user_id": part.user_ids.take(part.users).to_pylist(), "item_id": part.item_ids.take(part.items).to_pylist()}
    )


def by_relevant(per_user):
    """Our average precision, divided by all test items in place of at most K of them."""
    values, sizes = per_user
    return float(np.mean(values["map"] * np.minimum(sizes, K) / sizes))


def test_rectools(model, parts, expected, per_user):
    dated = {Columns.Weight: 1.0, Columns.Datetime: "2026-01-01"}
    dataset, test = Dataset.construct(frame(parts.train).assign(**dated)), frame(parts.test).assign(**dated)
    users = test[Columns.User].unique()
    lists = RankformerModel(model).recommend(users, dataset, k=K, filter_viewed=True)
    metrics = {
        "ndcg": rectools_metrics.NDCG(K, divide_by_achievable=True),
        "recall": rectools_metrics.Recall(K),
        "precision": rectools_metrics.Precision(K),
        "hit_rate": rectools_metrics.HitRate(K),
        "mrr": rectools_metrics.MRR(K),
        "map": rectools_metrics.MAP(K),
        "plain ndcg": rectools_metrics.NDCG(K),
    }
    found = rectools_metrics.calc_metrics(metrics, reco=lists, interactions=test)
    for name in ("ndcg", "recall", "precision", "hit_rate", "mrr"):
        assert found[name] == pytest.approx(expected[name], abs=1e-6), name
    assert found["map"] == pytest.approx(by_relevant(per_user), abs=1e-6)
    values, sizes = per_user
    ideal = np.cumsum(1 / np.log2(np.arange(2, K + 2)))
    plain = float(np.mean(values["ndcg"] * ideal[np.minimum(sizes, K) - 1] / ideal[-1]))
    assert found["plain ndcg"] == pytest.approx(plain, abs=1e-6)


def test_lenskit(model, parts, expected):
    train = from_interactions_df(frame(parts.train))
    pipeline = topn_pipeline(RankformerScorer.of(model), n=K)
    from lenskit.training import TrainingOptions

    pipeline.train(train, TrainingOptions(retrain=False))
    assert pipeline.component("scorer").model is model
    test = ItemListCollection.from_df(frame(parts.test), "user_id")
    with set_env_var("LK_NUM_PROCS", "1"):
        lists = batch.recommend(pipeline, test, n_jobs=1)
    metrics = {
        "ndcg": lenskit_metrics.NDCG(K),
        "recall_capped": lenskit_metrics.Recall(K),
        "precision": lenskit_metrics.Precision(K),
        "hit_rate": lenskit_metrics.Hit(K),
        "mrr": lenskit_metrics.RecipRank(K),
        "map": AveragePrecision(K),
    }
    found = lenskit_metrics.RunAnalysis(*metrics.values()).measure(lists, test).list_summary()["mean"]
    for name, metric in metrics.items():
        assert found[metric.label] == pytest.approx(expected[name], abs=1e-6), name


@pytest.fixture(scope="module")
def run(model, parts):
    """Our lists as other tools read them: rank 1 has the highest score."""
    users = frame(parts.test)["user_id"].unique().tolist()
    table = model.recommend(users, K, mask="train").to_pandas()
    return {
        user: dict(zip(rows["item_id"], (K + 1.0 - rows["rank"]), strict=True))
        for user, rows in table.groupby("user_id")
    }


@pytest.fixture(scope="module")
def truth(parts):
    return {user: dict.fromkeys(rows["item_id"], 1) for user, rows in frame(parts.test).groupby("user_id")}


def test_ir_measures(run, truth, expected, per_user):
    measures = {"ndcg": nDCG, "recall": R, "precision": P, "hit_rate": Success, "mrr": RR}
    found = ir_measures.calc_aggregate([each @ K for each in (*measures.values(), AP)], truth, run)
    for name, measure in measures.items():
        assert found[measure @ K] == pytest.approx(expected[name], abs=1e-6), name
    assert found[AP @ K] == pytest.approx(by_relevant(per_user), abs=1e-6)


def test_ranx(run, truth, expected, per_user):
    names = ("ndcg", "recall", "precision", "hit_rate", "mrr")
    found = ranx.evaluate(ranx.Qrels(truth), ranx.Run(run), [f"{name}@{K}" for name in (*names, "map")])
    for name in names:
        assert found[f"{name}@{K}"] == pytest.approx(expected[name], abs=1e-6), name
    assert found[f"map@{K}"] == pytest.approx(by_relevant(per_user), abs=1e-6)
