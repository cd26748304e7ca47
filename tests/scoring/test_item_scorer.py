"""Users scored by their histories alone, through the recommender."""

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, NotSupportedError, UnknownIdError
from rankformer.scoring.histories import Histories
from rankformer.scoring.item_matrix import DenseWeights, SparseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.recommender import Recommender

# What item j (row) says for item i (column). Item 3 says nothing for anyone.
WEIGHTS = torch.tensor([[0.0, 1.0, 2.0, 0.0], [4.0, 0.0, 0.0, 0.5], [3.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
LOG = Interactions.from_indices([0, 0, 1, 0], [0, 1, 2, 0], 3, 4)  # user 0 has item 0 twice; user 2 has nothing


def scorer_of(count_duplicates=False):
    return ItemScorer.of(DenseWeights(WEIGHTS), LOG, count_duplicates)


def recommender_of(count_duplicates=False):
    return Recommender(scorer_of(count_duplicates), LOG.user_ids, LOG.item_ids, LOG)


@pytest.mark.parametrize(("count_duplicates", "times"), [(False, 1), (True, 2)])
def test_a_duplicate_weighs_once_or_each_time(count_duplicates, times):
    scores = scorer_of(count_duplicates).scores(torch.tensor([2, 0, 1, 0]))
    first = times * WEIGHTS[0] + WEIGHTS[1]
    torch.testing.assert_close(scores, torch.stack([torch.zeros(4), first, WEIGHTS[2], first]))


def test_scores_are_fresh_each_time():
    scorer = scorer_of()
    scorer.scores(torch.tensor([0])).fill_(7)
    assert float(scorer.scores(torch.tensor([0])).max()) == 4.0
    assert float(WEIGHTS.max()) == 4.0


@pytest.mark.parametrize(("count_duplicates", "weight"), [(False, 1.0), (True, 2.0)])
def test_contributions_of_duplicates_add_up_to_what_it_weighs(count_duplicates, weight):
    history = Histories.of(np.zeros(3), np.array([0, 2, 0]), 1)
    parts = scorer_of(count_duplicates).contributions(history, 1, None)
    assert parts.items.tolist() == [weight / 2, -1.0, weight / 2]
    assert (parts.score, parts.user, parts.overall) == (weight - 1.0, 0.0, 0.0)
    found = recommender_of(count_duplicates).explain(item=1, history=[0, 2, 0])
    assert [(reason.item_id, reason.contribution) for reason in found.reasons] == [(0, weight), (2, -1.0)]


def test_the_recommender_answers_about_users_histories_and_items():
    recommender = recommender_of()
    assert (recommender.can_fold_in, recommender.can_explain, recommender.can_find_similar) == (True, True, True)
    assert [row["item_id"] for row in recommender.recommend([0]).to_dicts()] == [2, 3]
    found = recommender.recommend_histories({"a": [2, 99], "b": []}, k=2)
    assert [(row["user_id"], row["item_id"], row["score"]) for row in found.to_dicts()] == [
        ("a", 0, 3.0),
        ("a", 3, 0.0),
        ("b", 0, 2.0),  # two interactions of item 0 in the log: the most popular
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
    with pytest.raises(NotSupportedError, match="ItemScorer scores without embeddings"):
        _ = recommender.embeddings


def test_it_survives_its_tensors_and_metadata():
    scorer = scorer_of(count_duplicates=True)
    again = ItemScorer.restore(scorer.tensors(), scorer.metadata(), LOG)
    assert again.count_duplicates
    assert torch.equal(again.scores(torch.arange(3)), scorer.scores(torch.arange(3)))


@pytest.mark.parametrize("metadata", [{}, {"kind": "dense"}, {"kind": "other", "count_duplicates": True}])
def test_an_unknown_kind_is_rejected(metadata):
    with pytest.raises(DataError, match="none of embeddings, sparse, dense, graph-filter"):
        ItemScorer.restore({"weights": WEIGHTS}, metadata, LOG)


def test_weights_of_another_catalogue_are_rejected():
    with pytest.raises(DataError, match=r"expected \(4, 4\)"):
        ItemScorer.restore({"weights": WEIGHTS[:3, :3]}, {"kind": "dense", "count_duplicates": False}, LOG)
    with pytest.raises(DataError, match="the scorer knows 3 items"):
        Recommender(ItemScorer(DenseWeights(WEIGHTS[:3, :3]), scorer_of().histories), LOG.user_ids, LOG.item_ids, LOG)


@pytest.mark.parametrize("users", [95, 96, 101])  # below and above what three threads divide
def test_threads_change_no_score(users):
    log = random_log(120, 40, 900, seed=3)
    generator = torch.Generator().manual_seed(0)
    scorer = ItemScorer.of(SparseWeights.of_lists(*lists_of(40, 7, generator)), log)
    asked, threads = torch.randperm(120, generator=generator)[:users], torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = scorer.scores(asked)
        torch.set_num_threads(3)
        assert torch.equal(scorer.scores(asked), alone)
    finally:
        torch.set_num_threads(threads)


def lists_of(items, count, generator):
    sources = torch.stack([torch.randperm(items, generator=generator)[:count] for _ in range(items)])
    return sources, torch.rand(items, count, generator=generator)
