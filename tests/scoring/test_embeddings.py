"""Embeddings with a fold-in rule: scores of new users, and scores as sums."""

import numpy as np
import pytest
import torch

from rankformer.errors import NotSupportedError
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import Constant, WeightedSum
from rankformer.scoring.histories import Histories

USERS, ITEMS = torch.tensor([[1.0, 2.0], [0.5, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
HISTORY = Histories.of(np.zeros(2), np.array([0, 2]), 1)


def test_histories_are_scored_by_their_embeddings():
    scorer = Embeddings(USERS, ITEMS, WeightedSum(ITEMS, 1.0)).for_histories(HISTORY)
    torch.testing.assert_close(scorer.users, torch.tensor([[1.5, 1.0]]))
    assert scorer.items is ITEMS


@pytest.mark.parametrize("own_embedding", [True, False])
def test_the_score_of_a_training_user_is_exact_and_the_difference_is_the_users_contribution(own_embedding):
    scorer = Embeddings(USERS, ITEMS, WeightedSum(ITEMS, 1.0, own_embedding))
    trained = scorer.contributions(HISTORY, 2, 0)
    assert trained.score == 6.0
    assert trained.items.tolist() == [1.0, 4.0]
    assert (trained.user, trained.overall) == (1.0 if own_embedding else 0.0, 0.0)
    new = scorer.contributions(HISTORY, 2, None)
    assert (new.score, new.user) == (5.0, 0.0)


def test_a_rule_without_parts_folds_in_but_does_not_explain():
    rule = Constant(torch.ones(1, 2))
    scorer = Embeddings(USERS, ITEMS, rule)
    assert scorer.can_fold_in
    assert not scorer.can_explain
    split = rule.split(HISTORY)
    assert (split.parts.tolist(), split.rest.tolist()) == ([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0]])
    assert scorer.for_histories(HISTORY).scores(torch.tensor([0])).tolist() == [[1.0, 1.0, 4.0]]
    with pytest.raises(NotSupportedError, match="cannot be explained"):
        scorer.contributions(HISTORY, 2, None)


def test_without_a_rule_new_users_cannot_be_scored():
    scorer = Embeddings(USERS, ITEMS)
    assert not scorer.can_fold_in
    with pytest.raises(NotSupportedError, match="cannot score new users"):
        scorer.for_histories(HISTORY)
