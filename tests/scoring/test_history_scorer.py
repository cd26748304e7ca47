"""Embedded histories as scorers, and their scores taken apart."""

import numpy as np
import pytest
import torch

from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import Constant, Histories, WeightedSum
from rankformer.scoring.history_scorer import FoldInScorer

EMBEDDINGS = Embeddings(torch.tensor([[1.0, 2.0], [0.5, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]))
HISTORY = Histories.of(np.zeros(2), np.array([0, 2]), 1)


def test_histories_are_scored_by_their_vectors():
    scorer = FoldInScorer(EMBEDDINGS, WeightedSum(EMBEDDINGS.items, 1.0)).for_histories(HISTORY)
    torch.testing.assert_close(scorer.users, torch.tensor([[1.5, 1.0]]))
    assert scorer.items is EMBEDDINGS.items


@pytest.mark.parametrize("own_row", [True, False])
def test_a_training_users_score_is_its_rows_and_the_difference_its_own(own_row):
    scorer = FoldInScorer(EMBEDDINGS, WeightedSum(EMBEDDINGS.items, 1.0, own_row))
    shares = scorer.shares(HISTORY, 2, 0)
    assert shares.score == 6.0
    assert shares.entries.tolist() == [1.0, 4.0]
    assert (shares.own, shares.crowd) == (1.0 if own_row else 0.0, 0.0)
    made_up = scorer.shares(HISTORY, 2, None)
    assert (made_up.score, made_up.own) == (5.0, 0.0)


def test_a_vector_without_parts_is_the_crowds():
    scorer = FoldInScorer(EMBEDDINGS, Constant(torch.ones(1, 2)))
    assert not scorer.explains
    shares = scorer.shares(HISTORY, 2, None)
    assert (shares.score, shares.crowd, shares.entries.tolist()) == (4.0, 4.0, [0.0, 0.0])
