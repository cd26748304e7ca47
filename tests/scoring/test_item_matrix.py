"""Weights between items: products, columns, and what may be read back."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.scoring.item_matrix import DenseWeights, SparseWeights

M = 5
SOURCES = torch.tensor([[1, 2], [0, -1], [-1, -1], [4, 0], [3, 3]])
VALUES = torch.tensor([[0.5, -1.0], [2.0, 9.0], [9.0, 9.0], [1.0, 3.0], [1.0, 0.25]])
DENSE = np.array(
    [[0, 2, 0, 3, 0], [0.5, 0, 0, 0, 0], [-1, 0, 0, 0, 0], [0, 0, 0, 0, 1.25], [0, 0, 0, 1, 0]], dtype=np.float32
)
KINDS = {"sparse": SparseWeights.of_lists(SOURCES, VALUES), "dense": DenseWeights(torch.from_numpy(DENSE))}
NO_PAIRS = interaction_matrix(np.array([], int), np.array([], int), (2, M))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, M - 1)), max_size=20), st.booleans())
def test_products_and_columns_are_those_of_the_dense_matrix(kind, pairs, count_duplicates):
    users, items = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    counts = np.zeros((4, M), np.float32)
    np.add.at(counts, (users, items), 1)
    x = counts if count_duplicates else np.minimum(counts, 1)
    found = KINDS[kind].product(interaction_matrix(users, items, (4, M), count_duplicates))
    assert found.dtype == np.float32
    assert found.flags.writeable
    np.testing.assert_allclose(found, x @ DENSE, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(np.stack([KINDS[kind].column(item) for item in range(M)], axis=1), DENSE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_survives_its_tensors_and_metadata(kind):
    matrix = KINDS[kind]
    again = type(matrix).restore(matrix.tensors(), matrix.metadata(), NO_PAIRS)
    assert again.num_items == M
    np.testing.assert_array_equal(again.column(3), DENSE[:, 3])


def test_no_weights_at_all_are_fine():
    matrix = SparseWeights.of_lists(torch.full((M, 2), -1), torch.zeros(M, 2))
    again = SparseWeights.restore(matrix.tensors(), {}, NO_PAIRS)
    assert not again.product(interaction_matrix(np.array([0]), np.array([1]), (1, M))).any()


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("sparse", {"offsets": torch.tensor([0, 2, 3, 3, 5])}, "6 offsets"),
        ("sparse", {"offsets": torch.tensor([0, 2, 3, 3, 5, 7], dtype=torch.int32)}, "6 offsets of 64 bits"),
        ("sparse", {"offsets": torch.tensor([1, 2, 3, 3, 5, 7])}, "rise from 0 to 7"),
        ("sparse", {"offsets": torch.tensor([0, 2, 3, 3, 5, 8])}, "rise from 0 to 7"),
        ("sparse", {"offsets": torch.tensor([0, 4, 3, 3, 5, 7])}, "rise from 0 to 7"),
        ("sparse", {"offsets": torch.tensor([0, 2, 3, 3, 2**60, 7])}, "rise from 0 to 7"),
        ("sparse", {"sources": torch.zeros(6, dtype=torch.int32)}, "7 sources"),
        ("sparse", {"sources": torch.zeros(7)}, "7 sources of 32 bits"),
        ("sparse", {"sources": torch.full((7,), M, dtype=torch.int32)}, r"in 0\.\.4"),
        ("sparse", {"sources": torch.full((7,), -1, dtype=torch.int32)}, r"in 0\.\.4"),
        ("sparse", {"values": torch.full((7,), float("nan"))}, "finite"),
        ("sparse", {"values": torch.zeros(7, dtype=torch.int32)}, "finite numbers of type float32"),
        ("sparse", {"values": torch.zeros(7, 1)}, r"expected \(7,\)"),
        ("dense", {"weights": torch.zeros(M, M + 1)}, r"expected \(5, 5\)"),
        ("dense", {"weights": torch.zeros(M, M).double()}, "type float32"),
        ("dense", {"weights": torch.full((M, M), float("inf"))}, "finite"),
    ],
)
def test_tensors_that_do_not_fit_are_rejected(kind, change, message):
    matrix = KINDS[kind]
    with pytest.raises(DataError, match=message):
        type(matrix).restore({**matrix.tensors(), **change}, {}, NO_PAIRS)
