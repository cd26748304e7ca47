"""The weights of a blend: what a weight vector is worth is what evaluation says, and the choice is never a bad one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.evaluation import blend_weights
from rankformer.evaluation.blend_weights import Ballot, bagged_greedy, choose_weights
from rankformer.evaluation.evaluator import GroundTruth, evaluate
from rankformer.scoring.blend import BlendScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.seen_items import SeenItems

N, M = 40, 30


def parts_of(seed=0):
    """A training part in which everyone occurs, and a validation part of other pairs."""
    whole = random_log(N, M, 400, seed)
    held_out = np.random.default_rng(seed).random(len(whole)) < 0.3
    held_out[np.unique(whole.users, return_index=True)[1]] = False
    return whole.rows(~held_out), whole.rows(held_out)


TRAIN, VALID = parts_of()
SEEN, TRUTH = SeenItems.of(TRAIN), GroundTruth.of(VALID, TRAIN.user_ids, TRAIN.item_ids)


def scorer(seed=0, dimension=3):
    generator = torch.Generator().manual_seed(seed)
    return Embeddings(*(torch.randn(count, dimension, generator=generator) for count in (N, M)))


def informed(strength, seed=0):
    """A scorer that knows a part of the validation interactions."""
    liked = np.zeros((N, M), np.float32)
    liked[VALID.users, VALID.items] = strength
    noise = torch.randn(N, M, generator=torch.Generator().manual_seed(seed))
    return Embeddings(torch.from_numpy(liked) + noise, torch.eye(M))


def ndcg(scorers, weights, valid=VALID):
    named = {str(number): each for number, each in enumerate(scorers)}
    blend = BlendScorer.of(named, dict(zip(named, weights, strict=True)))
    recommender = Recommender(blend, TRAIN.user_ids, TRAIN.item_ids, TRAIN)
    return evaluate(recommender, valid, metrics=["ndcg@20"], mask="train").metrics["ndcg@20"]


def ballot(scorers, truth=TRUTH):
    return Ballot.of(scorers, truth, SEEN, seed=0)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any))
def test_a_weight_vector_is_worth_what_the_blend_scores_in_evaluation(weights):
    scorers = [scorer(1), informed(1.0), scorer(2, 7)]
    assert ballot(scorers).ndcg(weights) == pytest.approx(ndcg(scorers, weights), abs=1e-6)


def test_only_what_members_disagree_on_is_kept():
    scorers = [scorer(1), informed(1.0)]
    found = ballot(scorers)
    low, high = found.differences.aminmax(dim=0)
    assert len(found.earlier) > 0
    assert ((low < 0) & (high > 0)).all()
    assert found.ahead.max() < blend_weights.CUTOFF
    twin = ballot([scorers[1], scorers[1]])
    assert len(twin.earlier) == 0
    assert twin.ndcg([0.5, 0.5]) == pytest.approx(ndcg(scorers, [0.0, 1.0]), abs=1e-6)


def test_small_blocks_of_users_change_nothing(monkeypatch):
    scorers = [scorer(1), informed(1.0)]
    whole = ballot(scorers).ndcg([0.4, 0.6])
    monkeypatch.setattr(blend_weights, "_BLOCK_NUMBERS", 3 * 2 * M)
    assert ballot(scorers).ndcg([0.4, 0.6]) == pytest.approx(whole)


def test_interactions_that_occur_twice_count_as_in_evaluation():
    twice = VALID.rows(np.concatenate([np.arange(len(VALID)), np.arange(10)]))
    truth = GroundTruth.of(twice, TRAIN.user_ids, TRAIN.item_ids)
    scorers = [scorer(1), informed(1.0)]
    assert ballot(scorers, truth).ndcg([0.5, 0.5]) == pytest.approx(ndcg(scorers, [0.5, 0.5], twice), abs=1e-6)


def test_few_candidates_are_enough_where_members_agree(monkeypatch):
    scorers = [informed(4.0, 1), informed(4.0, 2)]
    exact = ballot(scorers).ndcg([0.5, 0.5])
    monkeypatch.setattr(blend_weights, "CANDIDATES", 20)
    assert ballot(scorers).ndcg([0.5, 0.5]) == pytest.approx(exact, abs=0.01)


def test_ties_go_to_the_item_with_the_lower_index():
    scorers = [Embeddings(torch.ones(N, 1), (torch.arange(M) % 3).float()[:, None])]  # three levels
    assert ballot(scorers).ndcg([1.0]) == pytest.approx(ndcg(scorers, [1.0]), abs=1e-6)


def test_a_sample_of_users_is_a_part_of_them_and_the_seed_decides_which(monkeypatch):
    monkeypatch.setattr(blend_weights, "MOST_USERS", 10)
    scorers = [scorer(1), scorer(2)]
    samples = [Ballot.of(scorers, TRUTH, SEEN, seed) for seed in (0, 0, 1)]
    assert samples[0].users == 10
    first, again, other = (sample.differences for sample in samples)
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_the_ballot_of_some_users_is_that_of_a_smaller_validation_part():
    scorers, chosen = [scorer(1), informed(1.0)], np.arange(len(TRUTH.users)) % 3 == 0
    some = VALID.rows(np.isin(VALID.users, TRUTH.users[chosen]))
    expected = ndcg(scorers, [0.3, 0.7], some)
    assert ballot(scorers).of_users(chosen).ndcg([0.3, 0.7]) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 3)), min_size=1, max_size=4))
def test_greedy_is_never_below_the_best_member(members):
    found = ballot([informed(strength, seed) for seed, strength in members])
    weights = found.greedy()
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    alone = [found.ndcg(row) for row in np.eye(len(members))]
    assert found.ndcg(weights) >= max(alone) - 1e-6


def test_members_that_know_different_things_are_better_together():
    scorers = [informed(1.5, 1), informed(1.5, 2)]
    found = ballot(scorers)
    weights = bagged_greedy(found)
    assert found.ndcg(weights) > 1.05 * max(found.ndcg([1, 0]), found.ndcg([0, 1]))
    assert min(weights) > 0.2


def test_a_useless_member_gets_nothing():
    found = choose_weights([informed(6.0), scorer(1)], TRUTH, SEEN)
    assert found.weights == [1.0, 0.0]
    assert found.value == found.without[1] == found.alone[0] > found.alone[1]


def test_a_member_that_the_others_do_clearly_better_without_gets_nothing():
    found = ballot([informed(1.5, seed) for seed in range(4)])
    kept = np.flatnonzero(bagged_greedy(found))
    value = found.ndcg(bagged_greedy(found))
    for k in kept:
        others = np.where(np.arange(4) == k, 0.0, bagged_greedy(found))
        assert found.ndcg(others) <= (1 + blend_weights.TOLERANCE) * value


def test_no_member_gets_more_than_half_where_that_costs_nothing(monkeypatch):
    found = ballot([informed(2.5, 1), informed(1.2, 2), informed(1.2, 3)])
    monkeypatch.setattr(blend_weights, "TOLERANCE", 1.0)
    capped = bagged_greedy(found)
    monkeypatch.setattr(blend_weights, "MOST_WEIGHT", 1.0)
    free = bagged_greedy(found)
    assert free.max() > 0.5 == capped.max()
    assert capped.sum() == pytest.approx(1)
    assert capped[1] / capped[2] == pytest.approx(free[1] / free[2])


def test_a_member_gets_more_than_half_where_validation_tells(monkeypatch):
    found = ballot([informed(6.0, 1), informed(0.5, 2)])
    capped, free = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    assert found.ndcg(capped) < 0.998 * found.ndcg(free)
    assert (blend_weights._capped(found, free) == free).all()


def test_values_are_those_of_the_blend_without_each_member_and_of_each_alone():
    scorers = [informed(1.5, 1), informed(1.5, 2), informed(1.0, 3)]
    found = choose_weights(scorers, TRUTH, SEEN)
    assert found.value == pytest.approx(ndcg(scorers, found.weights), abs=1e-6)
    for k in range(3):
        others = [0.0 if j == k else weight for j, weight in enumerate(found.weights)]
        assert found.without[k] == pytest.approx(ndcg(scorers, others), abs=1e-6)
        assert found.alone[k] == pytest.approx(ndcg(scorers[k : k + 1], [1.0]), abs=1e-6)


def test_users_without_a_training_interaction_do_not_vote():
    absent = TRUTH.users[::2]
    train = TRAIN.rows(~np.isin(TRAIN.users, absent))
    known = VALID.rows(~np.isin(VALID.users, absent))
    scorers, seen = [informed(1.5, 1), informed(1.5, 2), scorer(3)], SeenItems.of(train)
    found, expected = (
        choose_weights(scorers, GroundTruth.of(valid, TRAIN.user_ids, TRAIN.item_ids), seen) for valid in (VALID, known)
    )
    assert found == expected


def test_one_member_alone_has_all_the_weight_and_nothing_remains_without_it():
    found = choose_weights([scorer(1)], TRUTH, SEEN)
    assert found.weights == [1.0]
    assert found.without == [0]


def test_too_few_users_to_halve_are_taken_as_they_are():
    few = VALID.rows(np.isin(VALID.users, TRUTH.users[:2]))
    truth = GroundTruth.of(few, TRAIN.user_ids, TRAIN.item_ids)
    assert choose_weights([informed(6.0), scorer(1)], truth, SEEN).weights == [1.0, 0.0]


def test_nothing_found_by_anyone_gives_equal_weights():
    train = Interactions.from_indices(np.zeros(1), np.zeros(1), 1, M)
    valid = Interactions.from_indices(np.zeros(1), np.array([M - 1]), 1, M)
    backwards = Embeddings(torch.ones(1, 1), -torch.arange(M).float()[:, None])
    truth = GroundTruth.of(valid, train.user_ids, train.item_ids)
    assert choose_weights([backwards, backwards], truth, SeenItems.of(train))[0] == [0.5, 0.5]


def test_a_small_validation_part_has_more_bags(monkeypatch):
    small = ballot([informed(1, 0), informed(1, 1), scorer(2)])
    assert bagged_greedy(small).tolist() == bagged_greedy(small, bags=blend_weights.MOST_BAGS).tolist()
    monkeypatch.setattr(blend_weights, "BAGGED_PAIRS", 10 * len(small.earlier))
    assert bagged_greedy(small).tolist() == bagged_greedy(small, bags=10).tolist()
    monkeypatch.setattr(blend_weights, "BAGGED_PAIRS", 1)
    assert bagged_greedy(small).tolist() == bagged_greedy(small, bags=blend_weights.LEAST_BAGS).tolist()
