"""Runs side by side: the paired test, who gains, and what is refused."""

import numpy as np
import pytest
import torch
from scipy import stats

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.evaluation.comparison import compare, paired_test
from rankformer.evaluation.evaluator import evaluate
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender


@pytest.mark.parametrize("shift", [0.0, 0.01, -0.05, 0.3])
@pytest.mark.parametrize("users", [2, 7, 4000])
def test_it_is_scipys_paired_t_test(shift, users):
    rng = np.random.default_rng(users)
    first, second = rng.random(users) + shift, rng.random(users) ** 3
    ours, theirs = paired_test(first, second), stats.ttest_rel(first, second)
    interval = theirs.confidence_interval(0.95)
    assert ours.t == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert (ours.users, ours.difference) == (users, pytest.approx(np.mean(first - second)))


def test_the_order_of_users_matters_since_they_are_paired():
    rng = np.random.default_rng(0)
    base = rng.random(200)
    close = paired_test(base + 0.01 + rng.normal(0, 0.001, 200), base)
    mixed = paired_test(rng.permutation(base) + 0.01, base)
    assert close.p < 1e-50 < 0.05 < mixed.p


def test_equal_methods_do_not_differ():
    same = paired_test(np.ones(5), np.ones(5))
    assert (same.difference, same.t, same.p) == (0.0, 0.0, 1.0)
    assert paired_test(np.ones(5), np.zeros(5)).p == 0.0


def test_other_users_are_refused():
    with pytest.raises(DataError, match="same two or more users"):
        paired_test(np.ones(5), np.ones(6))
    with pytest.raises(DataError, match="same two or more users"):
        paired_test(np.ones(1), np.ones(1))


# Users 0 and 1 have one and three training interactions, user 2 none; item 0 is the most popular.
TRAIN = Interactions.from_indices([0, 1, 1, 1], [0, 0, 1, 2], 3, 6)
TEST = Interactions.from_indices([0, 1, 1, 2], [1, 3, 4, 0], 3, 6)


def ranked_by(*scores, train=TRAIN, test=TEST, metrics="ndcg@2,recall@2"):
    """The evaluation of a recommender with the same scores for everyone."""
    items = torch.tensor(scores, dtype=torch.float32)[:, None]
    recommender = Recommender(Embeddings(torch.ones(3, 1), items), train.user_ids, train.item_ids, train)
    return evaluate(recommender, test, metrics=metrics)


UP = ranked_by(6.0, 5.0, 4.0, 3.0, 2.0, 1.0)  # 0: 1 2; 1: 3 4; 2: popular, 0 1
DOWN = ranked_by(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)  # 0: 5 4; 1: 5 4; 2: popular, 0 1


def test_each_run_is_compared_with_the_first_over_the_same_users():
    found = compare({"up": UP, "down": DOWN}, TRAIN, TEST)
    assert found.metric == "ndcg@2"
    assert list(found.runs) == ["up", "down"]
    assert found.runs["up"]["recall@2"] == pytest.approx(1.0)
    assert found.runs["down"]["recall@2"] == pytest.approx((0 + 0.5 + 1) / 3)
    assert found.tests["down"] == paired_test(DOWN.per_user["ndcg@2"], UP.per_user["ndcg@2"])
    # Lists hold 1 2 3 4 0 1 of six items, and 5 4 5 4 0 1.
    assert (found.runs["up"]["coverage@2"], found.runs["down"]["coverage@2"]) == (5 / 6, 4 / 6)


def test_the_difference_is_split_by_activity_of_users_and_popularity_of_items():
    found = compare({"up": UP, "down": DOWN}, TRAIN, TEST)
    by_user = {group.label: group for group in found.by_activity}
    assert by_user["0"].size == 1
    assert by_user["0"].values["up"] == by_user["0"].values["down"] == 1.0
    assert by_user["1"].values == {"up": 1.0, "down": 0.0}
    assert by_user["3"].values["down"] < by_user["3"].values["up"]
    # Test interactions: on items 3 and 4 without training interactions, 1 with one, 0 with two.
    by_item = {group.label: group for group in found.by_popularity}
    assert {label: group.size for label, group in by_item.items()} == {"0": 2, "1": 1, "2": 1}
    assert by_item["0"].values == {"up": 1.0, "down": 0.5}
    assert by_item["1"].values == {"up": 1.0, "down": 0.0}
    assert by_item["2"].values == {"up": 1.0, "down": 1.0}


def test_a_list_of_alike_items_is_less_diverse():
    """Items 1 and 2 are had by the same user alone, 1 and 3 by nobody in common."""
    train = Interactions.from_indices([0, 0, 1], [1, 2, 3], 3, 4)
    test = Interactions.from_indices([1, 2], [0, 0], 3, 4)
    alike = evaluate_lists(train, test, [[1, 2], [2, 1]])
    apart = evaluate_lists(train, test, [[1, 3], [3, -1]])  # one item is not a pair
    found = compare({"alike": alike, "apart": apart}, train, test)
    assert found.runs["alike"]["diversity@2"] == pytest.approx(0.0)
    assert found.runs["apart"]["diversity@2"] == pytest.approx(1.0)


def evaluate_lists(train, test, lists):
    recommender = Recommender(Embeddings(torch.ones(3, 1), torch.ones(4, 1)), train.user_ids, train.item_ids, train)
    return evaluate(recommender, test, metrics="ndcg@2", lists=np.array(lists))


def test_another_test_part_is_refused():
    other = ranked_by(*range(6), test=Interactions.from_indices([0], [1], 3, 6))
    with pytest.raises(DataError, match="other was evaluated on another split"):
        compare({"up": UP, "other": other}, TRAIN, TEST)
    shorter = ranked_by(*range(6), metrics="ndcg@1")
    with pytest.raises(DataError, match=r"cutoffs 1, where up has cutoffs 2"):
        compare({"up": UP, "shorter": shorter}, TRAIN, TEST)
    with pytest.raises(DataError, match="two or more"):
        compare({"up": UP}, TRAIN, TEST)
