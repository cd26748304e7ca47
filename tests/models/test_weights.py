"""What weights of interactions mean to each method: as many duplicates, where it defines duplicates."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logs import random_log
from tests.repeated_logs import weighted_and_repeated

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, IgnoredWeightsWarning
from rankformer.models.registry import MODELS, load_model

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"embedding_dim": 8, "epochs": 3, "validate_every": 3, "num_layers": 2, "hidden_dim": 8}
# Every result of these is the same, whether an interaction has an integer weight or as many duplicates.
EXACT = {
    "popularity": {},
    "ials": {"embedding_dim": 6},
    **{name: {"duplicates": "count"} for name in ("item-knn", "rp3beta", "ease", "gf-cf")},
}


@pytest.fixture(params=MODELS, scope="module")
def name(request):
    return request.param


def make(name, **settings):
    fields = MODELS[name].settings_class.model_fields
    return MODELS[name](**{key: value for key, value in SMALL.items() if key in fields} | settings)


def scores_of(model):
    return model.recommender.scorer.scores(torch.arange(model.recommender.scorer.num_users))


def weighted(log, low=0.2, high=8.0):
    weights = np.random.default_rng(3).uniform(low, high, len(log)).astype(np.float32)
    return replace(log, weights=weights)


def fit(name, log, **settings):
    """Returns the fitted model, after making sure that it says so if it ignores weights."""
    if MODELS[name].uses_weights or log.confidence is None:
        return make(name, **settings).fit(log)
    with pytest.warns(IgnoredWeightsWarning, match=f"weights from .* to .* are ignored by {name}"):
        return make(name, **settings).fit(log)


def test_weights_change_the_scores_of_a_method_that_uses_them_and_of_no_other(name):
    plain, heavy = (scores_of(fit(name, log)) for log in (random_log(), weighted(random_log())))
    assert torch.equal(plain, heavy) != MODELS[name].uses_weights
    assert bool(torch.isfinite(heavy).all())


def test_age_does_too(name):
    times = np.random.default_rng(2).integers(1_600_000_000, 1_700_000_000, 60)
    timed = replace(random_log(), times=times)
    plain, aged = (scores_of(fit(name, log)) for log in (timed, timed.decay("100d")))
    assert torch.equal(plain, aged) != MODELS[name].uses_weights
    assert bool(torch.isfinite(aged).all())


def test_weights_of_one_change_nothing(name):
    ones = replace(random_log(), weights=np.ones(60, np.float32))
    plain, even = (scores_of(fit(name, log)) for log in (random_log(), ones))
    torch.testing.assert_close(even, plain, rtol=1e-4, atol=1e-5)


# Not so where a loop at each node weighs 1 beside the edges: difformer, sgformer.
@pytest.mark.parametrize("name", ["rankformer", "rankformer-cl", "lightgcn", "xsimgcl", "mf"])
@pytest.mark.parametrize("batch_size", [None, 16])
def test_a_trained_method_learns_from_ratios_of_weights_only(name, batch_size):
    log, options = weighted(random_log()), {"batch_size": batch_size, "initialization": "spectral"}
    light, heavy = (
        scores_of(fit(name, each, **options)) for each in (log, replace(log, weights=log.weights * np.float32(16)))
    )
    torch.testing.assert_close(heavy, light, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", EXACT)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**20), most=st.integers(1, 6), size=st.integers(1, 100))
def test_integer_weights_are_duplicates(method, seed, most, size):
    weighted_log, repeated = weighted_and_repeated(size=size, most=most, seed=seed)
    models = [make(method, **EXACT[method]).fit(log) for log in (weighted_log, repeated)]
    first, second = (scores_of(model) for model in models)
    torch.testing.assert_close(first, second, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("method", ["item-knn", "rp3beta", "ease", "gf-cf"])
def test_of_duplicates_that_count_once_the_heaviest_counts(method):
    log = weighted(random_log())
    lighter = replace(log, weights=log.weights / 2)
    twice = Interactions.from_indices(
        np.concatenate([log.users, log.users]),
        np.concatenate([log.items, log.items]),
        15,
        12,
        weights=np.concatenate([lighter.weights, log.weights]),
    )
    torch.testing.assert_close(scores_of(make(method).fit(twice)), scores_of(make(method).fit(log)))


def test_a_saved_run_keeps_what_its_lists_and_explanations_need(name, tmp_path):
    log = weighted(random_log())
    model = fit(name, log)
    model.save(tmp_path / "run")
    again = load_model(tmp_path / "run")
    assert again.recommend(k=5).table.equals(model.recommend(k=5).table)
    assert torch.equal(scores_of(again), scores_of(model))
    kept = again.recommender.history.weights
    assert (kept is not None) == MODELS[name].uses_weights
    assert kept is None or kept.tolist() == log.weights.tolist()
    if model.recommender.can_explain:
        found = again.explain(3, 5)
        parts = [reason.contribution for reason in found.reasons]
        total = sum(parts) + found.user_contribution + found.global_contribution
        assert total == pytest.approx(found.score, abs=1e-5, rel=1e-5)
        score = float(scores_of(model)[3, 5])
        assert found.score == pytest.approx(score, abs=1e-5, rel=1e-4)


@pytest.mark.parametrize("duplicates", ["once", "count"])
def test_contributions_of_weighted_duplicates_add_up(duplicates):
    log = weighted(Interactions.from_indices([0, 0, 0, 1, 1, 2], [0, 0, 1, 0, 2, 1], 3, 3))
    model = make("item-knn", duplicates=duplicates).fit(log)
    for item in range(3):
        found = model.explain(0, item)
        assert sum(reason.contribution for reason in found.reasons) == pytest.approx(found.score)
        assert found.score == pytest.approx(float(scores_of(model)[0, item]), rel=1e-5)


def test_a_training_user_of_ials_is_what_its_weighted_history_gives():
    model = make("ials").fit(weighted(random_log()))
    found = model.explain(3, 5)
    assert found.score == pytest.approx(sum(reason.contribution for reason in found.reasons), rel=1e-4)


def test_popular_items_are_those_of_the_largest_weights():
    log = Interactions.from_indices([0, 1, 2], [0, 0, 1], weights=np.array([1, 1, 5], np.float32))
    for method in ("popularity", "ease"):
        lists = MODELS[method]().fit(log).recommend(histories={"new": []}, k=2).to_dicts()
        assert [row["item_id"] for row in lists] == [1, 0]


def test_weights_that_cannot_count_are_refused_by_a_method_that_uses_them():
    log = replace(random_log(), weights=np.zeros(60, np.float32))
    with pytest.raises(DataError, match="60 interactions of weight 0 or less"):
        make("ials").fit(log)
    fit("gformer", log)


def test_the_page_on_weights_says_of_each_method_what_its_class_says():
    page = (Path(__file__).parents[2] / "docs" / "weights.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+?) \|$", page, re.MULTILINE))
    assert rows.keys() == MODELS.keys()
    assert {name for name, row in rows.items() if row.startswith("ignored")} == {
        name for name, kind in MODELS.items() if not kind.uses_weights
    }
