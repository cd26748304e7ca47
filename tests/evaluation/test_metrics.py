"""Metrics: numbers worked out by hand, properties, and ir-measures as the reference."""

import math

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.errors import ConfigError
from rankformer.evaluation import metrics
from rankformer.evaluation.metrics import OVER_LISTS, PER_USER, Metric, Outcome, parse_metrics

LOG3 = math.log2(3)


def hits_of(*rows):
    return np.array([[mark == "x" for mark in row] for row in rows])


def outcome_of(hits, counts, distinct, num_items=50):
    lists = np.tile(np.arange(hits.shape[1]), (len(hits), 1))
    return Outcome(hits, lists, np.asarray(counts), np.asarray(distinct), np.ones(num_items, dtype=np.int64))


def test_ndcg_by_hand():
    # "x.x" with 2 interactions: (1/log2(2) + 1/log2(4)) / (1/log2(2) + 1/log2(3)) = 1.5 / (1 + 0.63093) = 0.91972
    # ".x." with 1 line: (1/log2(3)) / 1 = 0.63093
    # "xxx" with 9 interactions: the ideal is cut at K=3, so 1
    values = metrics.ndcg(hits_of("x.x", ".x.", "xxx"), np.array([2, 1, 9]))
    np.testing.assert_allclose(values, [1.5 / (1 + 1 / LOG3), 1 / LOG3, 1.0], rtol=1e-12)
    np.testing.assert_allclose(values, [0.91972, 0.63093, 1.0], atol=1e-5)


def test_duplicates_lower_ndcg_and_recall_capped_but_not_recall():
    # One distinct item, in two interactions, found at rank 1. Ideal DCG over two interactions: 1 + 1/log2(3) = 1.63093.
    hits = hits_of("x..")
    np.testing.assert_allclose(metrics.ndcg(hits, np.array([2])), [1 / (1 + 1 / LOG3)])
    assert metrics.recall(hits, np.array([1])).tolist() == [1.0]
    assert metrics.recall_capped(hits, np.array([2])).tolist() == [0.5]


def test_recall_divides_by_all_items_and_recall_capped_by_at_most_k():
    # 2 hits among K=4 ranks; 5 test items: 2/5 and 2/4. With 3 test items: 2/3 both ways.
    hits, counts = hits_of("x..x", "x..x"), np.array([5, 3])
    np.testing.assert_allclose(metrics.recall(hits, counts), [0.4, 2 / 3])
    np.testing.assert_allclose(metrics.recall_capped(hits, counts), [0.5, 2 / 3])


def test_precision_hit_rate_and_mrr_by_hand():
    hits = hits_of("..xx", "....", "x...")
    assert metrics.precision(hits).tolist() == [0.5, 0.0, 0.25]
    assert metrics.hit_rate(hits).tolist() == [1.0, 0.0, 1.0]
    np.testing.assert_allclose(metrics.mrr(hits), [1 / 3, 0.0, 1.0])


def test_average_precision_by_hand():
    # "x.x." with 3 items: (1/1 + 2/3) / 3 = 0.5556; with 9 items the divisor is K=4: 0.41667.
    hits = hits_of("x.x.", "x.x.")
    np.testing.assert_allclose(metrics.average_precision(hits, np.array([3, 9])), [5 / 9, 5 / 12])


def test_coverage_novelty_and_gini_by_hand():
    # Listed: item 0 three times, item 1 once, one missing item; catalogue of 4 items with 4, 2, 2, 0 interactions.
    lists = np.array([[0, 1], [0, -1], [0, -1]])
    assert metrics.coverage(lists, 4) == 0.5
    # Fractions 4/8 and 2/8: bits 1 and 2; the mean of 1 1 1 2 is 1.25.
    assert metrics.novelty(lists, np.array([4, 2, 2, 0])) == pytest.approx(1.25)
    # Sorted 0 0 1 3 with weights -3 -1 1 3: (1 + 9) / (4 * 4) = 0.625.
    assert metrics.gini(lists, 4) == pytest.approx(0.625)


def test_gini_is_zero_when_every_item_is_listed_equally_often_and_novelty_finite_for_unseen_items():
    assert metrics.gini(np.array([[0, 1], [2, 3]]), 4) == pytest.approx(0.0)
    assert metrics.novelty(np.array([[3]]), np.array([4, 2, 2, 0])) == pytest.approx(3.0)  # -log2(1/8)


def test_lists_without_any_item_are_zero_not_a_division_error():
    empty = np.full((2, 3), -1)
    assert [f(empty, 4) for f in (metrics.coverage, metrics.gini)] == [0.0, 0.0]
    assert metrics.novelty(empty, np.array([1, 1])) == 0.0


@st.composite
def rankings(draw):
    """A hit matrix with truth sizes that allow it, without duplicates."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_users, cutoff = draw(st.integers(1, 8)), draw(st.integers(1, 25))
    hits = rng.random((num_users, cutoff)) < draw(st.sampled_from([0.05, 0.3, 0.9]))
    missed = rng.integers(0, 40, num_users)
    return hits, np.maximum(hits.sum(1) + missed, 1)


@settings(deadline=None)
@given(rankings())
def test_every_per_user_metric_stays_between_zero_and_one(ranking):
    hits, sizes = ranking
    for name, metric in PER_USER.items():
        values = metric(outcome_of(hits, sizes, sizes))
        assert values.shape == (len(hits),), name
        assert values.dtype == np.float64
        assert ((values >= 0) & (values <= 1 + 1e-12)).all(), name


@settings(deadline=None)
@given(rankings())
def test_recall_never_exceeds_recall_capped_without_repeats(ranking):
    hits, sizes = ranking
    assert (metrics.recall(hits, sizes) <= metrics.recall_capped(hits, sizes)).all()


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(1, 60))
def test_a_perfect_list_scores_one(cutoff, size):
    hits = np.arange(cutoff)[None, :] < size
    outcome = outcome_of(hits, [size], [size])
    for name in ("ndcg", "recall_capped", "hit_rate", "mrr", "map"):
        np.testing.assert_allclose(PER_USER[name](outcome), [1.0], err_msg=name)
    np.testing.assert_allclose(PER_USER["recall"](outcome), [min(cutoff, size) / size])
    np.testing.assert_allclose(PER_USER["precision"](outcome), [min(cutoff, size) / cutoff])


@settings(deadline=None)
@given(rankings(), st.data())
def test_moving_a_hit_up_never_lowers_a_rank_aware_metric(ranking, data):
    hits, sizes = ranking
    lower = data.draw(st.integers(0, hits.shape[1] - 1))
    upper = data.draw(st.integers(0, lower))
    moved = hits.copy()
    moved[:, upper], moved[:, lower] = hits[:, upper] | hits[:, lower], hits[:, upper] & hits[:, lower]
    if upper == lower:
        moved = hits
    for name in ("ndcg", "mrr", "map"):
        before, after = (PER_USER[name](outcome_of(marks, sizes, sizes)) for marks in (hits, moved))
        assert (after >= before - 1e-12).all(), name
    changed = (moved != hits).any(1)
    assert (metrics.ndcg(moved, sizes)[changed] > metrics.ndcg(hits, sizes)[changed]).all()


@settings(deadline=None)
@given(rankings(), st.randoms())
def test_the_order_of_users_changes_no_users_value_and_no_list_metric(ranking, random):
    hits, sizes = ranking
    order = list(range(len(hits)))
    random.shuffle(order)
    straight, shuffled = outcome_of(hits, sizes, sizes), outcome_of(hits[order], sizes[order], sizes[order])
    for name, metric in PER_USER.items():
        np.testing.assert_array_equal(metric(straight)[order], metric(shuffled), err_msg=name)
    for name, metric in OVER_LISTS.items():
        assert metric(straight) == metric(shuffled), name


@pytest.mark.parametrize("cutoff", [1, 5, 20])
def test_ir_measures_agrees_per_user_on_random_runs(cutoff):
    rng = np.random.default_rng(cutoff)
    num_users, num_items = 40, 60
    relevant = rng.random((num_users, num_items)) < rng.uniform(0.02, 0.6, (num_users, 1))
    relevant[np.arange(num_users), rng.integers(0, num_items, num_users)] = True
    lists = np.argsort(rng.random((num_users, num_items)), axis=1)[:, :20]
    qrels = {str(u): {str(i): 1 for i in np.flatnonzero(relevant[u])} for u in range(num_users)}
    run = {str(u): {str(i): 100.0 - rank for rank, i in enumerate(lists[u])} for u in range(num_users)}
    oracle = {
        "ndcg": ir_measures.nDCG @ cutoff,
        "recall": ir_measures.R @ cutoff,
        "precision": ir_measures.P @ cutoff,
        "mrr": ir_measures.RR @ cutoff,
        "hit_rate": ir_measures.Success @ cutoff,
        "map": ir_measures.AP @ cutoff,
    }
    expected = {name: np.full(num_users, np.nan) for name in oracle}
    names = {measure: name for name, measure in oracle.items()}
    for value in ir_measures.iter_calc(list(names), qrels, run):
        expected[names[value.measure]][int(value.query_id)] = value.value
    sizes = relevant.sum(1)
    outcome = outcome_of(np.take_along_axis(relevant, lists, axis=1), sizes, sizes).at(cutoff)
    # trec_eval divides average precision by all relevant items, we by min(K, relevant): see the docstring.
    expected["map"] *= sizes / np.minimum(sizes, cutoff)
    for name, values in expected.items():
        np.testing.assert_allclose(PER_USER[name](outcome), values, rtol=1e-9, atol=1e-12, err_msg=name)


def test_parse_metrics_reads_lists_and_comma_text_and_drops_repeats():
    expected = (Metric("ndcg", 20), Metric("recall_capped", 5))
    assert parse_metrics(["ndcg@20", " recall_capped@5", "ndcg@20"]) == expected
    assert parse_metrics("ndcg@20,recall_capped@5") == expected
    assert [str(metric) for metric in expected] == ["ndcg@20", "recall_capped@5"]


def test_unknown_metric_error_lists_every_known_one():
    with pytest.raises(ConfigError) as caught:
        parse_metrics(["auc@20"])
    assert all(name in str(caught.value) for name in [*PER_USER, *OVER_LISTS])


@pytest.mark.parametrize("text", ["ndcg", "ndcg@", "ndcg@0", "ndcg@-3", "ndcg@1.5", "ndcg@²", "ndcg@20@5"])
def test_bad_cutoffs_are_refused(text):
    with pytest.raises(ConfigError, match="integer from 1"):
        parse_metrics([text])


def test_no_metric_at_all_is_refused():
    with pytest.raises(ConfigError, match="no metric"):
        parse_metrics([])
