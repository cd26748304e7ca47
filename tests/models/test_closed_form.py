"""Methods that are solved for: what they log, and that a history is all there is to a user."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer import EASE, GFCF, IALS, ItemKNN, evaluate, load_model
from rankformer.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(40, 25, 220, repeats=20)
VALID = repeated_log(40, 25, 60, seed=9)
BY_ITEMS = [
    ItemKNN(neighbours=4, tune=False),
    ItemKNN(neighbours=4, duplicates="count", tune=False),
    EASE(regularization=2, keep=5),
    EASE(regularization=2, keep=None, duplicates="count"),
    GFCF(factors=4, tune=False),
    GFCF(factors=4, duplicates="count", tune=False),
]
EVERY = [*BY_ITEMS, IALS(embedding_dim=4, weight=5, regularization=1, iterations=5)]


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_the_validation_part_is_measured_and_nothing_else(model):
    alone = model.fit(LOG).recommend(k=3).table
    assert [event["event"] for event in model.log] == ["solved"]
    beside = model.fit(LOG, VALID)
    assert beside.recommend(k=3, mask="train").table.equals(alone)
    solved, validation = beside.log
    expected = evaluate(beside, VALID, metrics="ndcg@20").metrics["ndcg@20"]
    assert validation["ndcg@20"] == expected
    assert 0 <= solved["seconds"] <= validation["seconds"]


def test_the_few_settings_that_matter_are_chosen_on_the_validation_part(tmp_path):
    model = ItemKNN(neighbours=4).fit(LOG, VALID)
    trials = [event for event in model.log if event["event"] == "trial"]
    tried = {name for trial in trials for name in trial["settings"]}
    assert tried == {"user_power", "asymmetry", "shrinkage"}  # neighbours is given
    best = max(trials, key=lambda trial: trial["value"])
    assert best["value"] == model.log[-1]["ndcg@20"]
    assert {name: getattr(model.settings, name) for name in best["settings"]} == best["settings"]
    same = ItemKNN(neighbours=4, tune=False, **best["settings"]).fit(LOG, VALID)
    lists = same.recommend(k=3).table
    assert model.recommend(k=3).table.equals(lists)
    model.save(tmp_path / "run")
    assert load_model(tmp_path / "run").settings == model.settings
    assert len(model.refitted(LOG).log) == 1  # nothing is searched again


def test_without_a_validation_part_or_with_all_settings_given_nothing_is_tuned():
    assert ItemKNN().fit(LOG).settings == ItemKNN().settings
    given = ItemKNN(neighbours=4, user_power=0.5, shrinkage=1.0, asymmetry=0.5).fit(LOG, VALID)
    assert [event["event"] for event in given.log] == ["solved", "validation"]


def test_a_metric_that_does_not_exist_is_refused_before_the_work(monkeypatch):
    model = ItemKNN(metric="ndgc@20")
    monkeypatch.setattr(ItemKNN, "solve", lambda self, train: pytest.fail("solved first"))
    with pytest.raises(ConfigError, match="ndgc"):
        model.fit(LOG)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_a_training_users_history_gets_that_users_list_and_scores(model):
    model.fit(LOG)
    histories = {user: LOG.items[LOG.users == user].tolist() for user in np.unique(LOG.users).tolist()}
    new = model.recommend(histories=histories, k=6).table
    trained = model.recommend(list(histories), k=6).table
    assert new["item_id"].to_pylist() == trained["item_id"].to_pylist()
    np.testing.assert_allclose(new["score"].to_numpy(), trained["score"].to_numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_the_contributions_of_the_history_are_the_whole_score(model, tmp_path):
    model.fit(LOG).save(tmp_path / "run")
    scores = model.recommender.scorer.scores(torch.arange(40))
    for fitted in (model, load_model(tmp_path / "run")):
        for user in range(0, 38, 9):
            for item in range(0, 25, 4):
                found = fitted.explain(user, item)
                assert found.score == pytest.approx(float(scores[user, item]), abs=1e-5)
                assert sum(reason.contribution for reason in found.reasons) == pytest.approx(found.score, abs=1e-5)
                assert (found.user_contribution, found.global_contribution) == (0.0, 0.0)
                assert {reason.item_id for reason in found.reasons} == set(LOG.items[LOG.users == user].tolist())


@pytest.mark.parametrize("model", BY_ITEMS, ids=repr)
def test_a_contribution_is_what_the_score_loses_without_the_item(model):
    """Weights between items do not depend on the history, so leaving an item out takes its contribution and no more."""
    recommender = model.fit(LOG).recommender
    target = 6
    first, second, third = np.flatnonzero(recommender.scorer.matrix.column(target))[:3].tolist()
    history = [first, first, second, third]
    whole = recommender.explain(item=target, history=history)
    for left_out in (first, second, third):
        rest = recommender.explain(item=target, history=[item for item in history if item != left_out])
        [contribution] = [reason.contribution for reason in whole.reasons if reason.item_id == left_out]
        assert whole.score - rest.score == pytest.approx(contribution, abs=1e-12)
    once = recommender.explain(item=target, history=[first, second, third])
    assert (once.score == pytest.approx(whole.score, abs=1e-12)) == (model.settings.duplicates == "once")


@pytest.mark.parametrize("model", BY_ITEMS, ids=repr)
def test_similar_items_are_those_that_speak_for_it(model):
    matrix = model.fit(LOG).recommender.scorer.matrix
    column = matrix.column(4)
    column[4] = 0
    rows = model.similar_items(4, k=25).to_dicts()
    assert [row["similar_item_id"] for row in rows] == sorted(np.flatnonzero(column), key=lambda j: (-column[j], j))
    np.testing.assert_allclose([row["score"] for row in rows], -np.sort(-column[column != 0]), rtol=1e-6)
