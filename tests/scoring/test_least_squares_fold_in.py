"""Fold-in by least squares: one small system per user, however users are batched."""

import numpy as np
import pytest
import torch

from rankformer.errors import DataError
from rankformer.scoring import fold_in
from rankformer.scoring.fold_in import LeastSquares, embed
from rankformer.scoring.histories import Histories

ITEMS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
# User 0 has nothing, user 1 one item, user 2 one of them twice, user 3 all, user 5 nothing.
PAIRS = [(1, 4), (2, 0), (2, 0), (2, 7), *[(3, item) for item in range(9)], (4, 2), (4, 8)]
HISTORIES = Histories.of(*np.array(PAIRS).T, 6)


def solved_one_by_one(weight, regularization):
    q = ITEMS.double()
    rows = []
    for user in range(6):
        history = q[[item for owner, item in PAIRS if owner == user]]
        matrix = q.T @ q + regularization * torch.eye(4).double() + (weight - 1) * history.T @ history
        rows.append(torch.linalg.solve(matrix, weight * history.sum(0)))
    return torch.stack(rows)


@pytest.mark.parametrize("weight", [1.0, 7.5])
@pytest.mark.parametrize("at_once", [1, 200, 1 << 21])
def test_each_user_solves_its_own_system(monkeypatch, weight, at_once):
    monkeypatch.setattr(fold_in, "_NUMBERS_AT_ONCE", at_once)
    rows = embed(LeastSquares(ITEMS, weight, 0.3), HISTORIES)
    torch.testing.assert_close(rows, solved_one_by_one(weight, 0.3), rtol=1e-10, atol=1e-12)


def test_a_part_lies_along_the_solution_for_its_item_alone():
    rule = LeastSquares(ITEMS, 5.0, 0.3)
    parts = rule.split(HISTORIES).parts
    q, history = ITEMS.double(), ITEMS.double()[[0, 0, 7]]  # of user 2
    matrix = q.T @ q + 0.3 * torch.eye(4).double() + 4.0 * history.T @ history
    torch.testing.assert_close(parts[1:4] @ matrix, 5.0 * history, rtol=1e-10, atol=1e-12)


def test_it_survives_its_tensors_and_metadata():
    rule = LeastSquares(ITEMS, 5.0, 0.3)
    again = LeastSquares.restore(rule.tensors(), rule.metadata())
    assert torch.equal(embed(again, HISTORIES), embed(rule, HISTORIES))


@pytest.mark.parametrize(
    ("weight", "regularization"), [(0.5, 1), (1, 0), (1, -1), (float("nan"), 1), (2, float("inf"))]
)
def test_numbers_without_a_solution_are_rejected(weight, regularization):
    with pytest.raises(DataError, match="a weight from 1 and a regularization above 0"):
        LeastSquares.restore({"vectors": ITEMS}, {"weight": weight, "regularization": regularization})
