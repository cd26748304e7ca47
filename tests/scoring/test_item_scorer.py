"""Users scored by their histories alone, through the recommender."""

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, NotSupportedError, UnknownIdError
from rankformer.scoring.fold_in import Histories
from rankformer.scoring.item_matrix import DenseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.recommender import Recommender

# What item j (row) says for item i (column). Item 3 says nothing for anyone.
WEIGHTS = torch.tensor([[0.0, 1.0, 2.0, 0.0], [4.0, 0.0, 0.0, 0.5], [3.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
LOG = Interactions.from_indices([0, 0, 1, 0], [0, 1, 2, 0], 3, 4)  # user 0 has item 0 twice; user 2 has nothing


def scorer_of(count_repeats=False):
    return ItemScorer.of(DenseWeights(WEIGHTS), LOG, count_repeats)


def recommender_of(count_repeats=False):
    return Recommender(scorer_of(count_repeats), LOG.user_ids, LOG.item_ids, LOG)


@pytest.mark.parametrize(("count_repeats", "times"), [(False, 1), (True, 2)])
def test_a_repeated_item_weighs_once_or_each_time(count_repeats, times):
    scores = scorer_of(count_repeats).scores(torch.tensor([2, 0, 1, 0]))
    first = times * WEIGHTS[0] + WEIGHTS[1]
    torch.testing.assert_close(scores, torch.stack([torch.zeros(4), first, WEIGHTS[2], first]))


def test_scores_are_fresh_each_time():
    scorer = scorer_of()
    scorer.scores(torch.tensor([0])).fill_(7)
    assert float(scorer.scores(torch.tensor([0])).max()) == 4.0
    assert float(WEIGHTS.max()) == 4.0


@pytest.mark.parametrize(("count_repeats", "share"), [(False, 1.0), (True, 2.0)])
def test_shares_of_a_repeated_item_add_up_to_what_it_weighs(count_repeats, share):
    history = Histories.of(np.zeros(3), np.array([0, 2, 0]), 1)
    shares = scorer_of(count_repeats).shares(history, 1, None)
    assert shares.entries.tolist() == [share / 2, -1.0, share / 2]
    assert shares.score == share - 1.0
    found = recommender_of(count_repeats).explain_history([0, 2, 0], 1)
    assert [(reason.item_id, reason.contribution) for reason in found.reasons] == [(0, share), (2, -1.0)]


def test_the_recommender_answers_about_users_histories_and_items():
    recommender = recommender_of()
    assert (recommender.can_fold_in, recommender.can_explain, recommender.can_find_similar) == (True, True, True)
    assert [row["item_id"] for row in recommender.recommend([0]).to_dicts()] == [2, 3]
    found = recommender.recommend_histories({"a": [2, 99], "b": []}, k=2)
    assert [(row["user_id"], row["item_id"], row["score"]) for row in found.to_dicts()] == [
        ("a", 0, 3.0),
        ("a", 3, 0.0),
        ("b", 0, 2.0),  # two lines of item 0 in the log: the most popular
        ("b", 1, 1.0),
    ]
    assert found.unknown_items == {"a": [99]}
    assert found.fallbacks == ["b"]
    # Items 1 and 2 speak for item 0; 0 speaks for 1 and 2 against it; nothing speaks for 2 but item 0.
    assert [row["similar_item_id"] for row in recommender.similar_items(0).to_dicts()] == [1, 2]
    assert [(row["similar_item_id"], row["score"]) for row in recommender.similar_items(1).to_dicts()] == [
        (0, 1.0),
        (2, -1.0),
    ]
    assert [reason.item_id for reason in recommender.explain(0, 3).reasons] == [1, 0]
    with pytest.raises(UnknownIdError):
        recommender.explain(0, 99)
    with pytest.raises(NotSupportedError, match="ItemScorer scores without vectors"):
        _ = recommender.embeddings


def test_it_survives_its_tensors_and_numbers():
    scorer = scorer_of(count_repeats=True)
    again = ItemScorer.restore(scorer.tensors(), scorer.numbers(), LOG)
    assert again.count_repeats
    assert torch.equal(again.scores(torch.arange(3)), scorer.scores(torch.arange(3)))


@pytest.mark.parametrize("numbers", [{}, {"kind": "dense"}, {"kind": "other", "count_repeats": True}])
def test_an_unknown_kind_is_refused(numbers):
    with pytest.raises(DataError, match="none of embeddings, sparse, dense, graph-filter"):
        ItemScorer.restore({"weights": WEIGHTS}, numbers, LOG)


def test_weights_of_another_catalogue_are_refused():
    with pytest.raises(DataError, match=r"expected \(4, 4\)"):
        ItemScorer.restore({"weights": WEIGHTS[:3, :3]}, {"kind": "dense", "count_repeats": False}, LOG)
    with pytest.raises(DataError, match="the scorer knows 3 items"):
        Recommender(ItemScorer(DenseWeights(WEIGHTS[:3, :3]), scorer_of().histories), LOG.user_ids, LOG.item_ids, LOG)
