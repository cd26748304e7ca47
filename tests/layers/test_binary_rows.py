"""Rows of the 0/1 matrix, and their weighted products, against the dense matrix."""

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.binary_rows import BinaryMatrix, weighted_rows

PAIRS = [(0, 1), (0, 3), (0, 1), (1, 0), (3, 3), (3, 1), (3, 1), (3, 1), (4, 2)]  # user 2 has nothing; some repeat
N, M = 5, 4


def dense():
    matrix = torch.zeros(N, M, dtype=torch.float64)
    for user, item in PAIRS:
        matrix[user, item] = 1
    return matrix


@pytest.fixture(scope="module")
def matrix():
    users, items = np.array(PAIRS).T
    return BinaryMatrix.of(BipartiteGraph.from_interactions(Interactions.from_indices(users, items, N, M)))


# Nodes in any order, with one that has no row, of users and of items; and whether the matrix is turned over.
BATCHES = [([3, 0, 2], False), ([0, 1, 2, 3, 4], False), ([N + 1, N + 3], True), ([N + 3, N, N + 1, N + 2], True)]


@pytest.mark.parametrize(("nodes", "turned"), BATCHES)
def test_rows_hold_each_pair_once(matrix, nodes, turned):
    batch = matrix.rows(torch.tensor(nodes))
    whole = dense().T if turned else dense()
    found = torch.zeros(batch.num_rows, whole.shape[1], dtype=torch.float64)
    found.index_put_((batch.rows, batch.columns), torch.ones(len(batch.rows), dtype=torch.float64), accumulate=True)
    assert torch.equal(found, whole[[node - N if turned else node for node in nodes]])
    assert bool((batch.columns[batch.order].diff() >= 0).all())


@pytest.mark.parametrize(("nodes", "turned"), BATCHES)
def test_the_sparse_layer_is_the_dense_one_with_its_gradients(matrix, nodes, turned):
    batch = matrix.rows(torch.tensor(nodes))
    x = (dense().T if turned else dense())[[node - N if turned else node for node in nodes]]
    torch.manual_seed(0)
    table = torch.randn(x.shape[1], 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, x.shape[1], dtype=torch.float64, requires_grad=True)
    sparse = weighted_rows(batch, table, weights)
    full = torch.stack([(x * weight) @ table for weight in weights])
    torch.testing.assert_close(sparse, full)
    direction = torch.randn_like(full)
    ours = torch.autograd.grad((sparse * direction).sum(), (table, weights))
    expected = torch.autograd.grad((full * direction).sum(), (table, weights))
    for gradient, reference in zip(ours, expected, strict=True):
        torch.testing.assert_close(gradient, reference)


@pytest.mark.parametrize(("nodes", "turned"), BATCHES)
@pytest.mark.parametrize("drop", [[], [0], [1, 3], range(9)])
def test_chosen_entries_are_the_rows_without_the_others(matrix, nodes, turned, drop):
    batch = matrix.rows(torch.tensor(nodes))
    x = (dense().T if turned else dense())[[node - N if turned else node for node in nodes]]
    chosen = torch.tensor([place not in drop for place in range(len(batch.columns))])
    fewer = batch.where(chosen)
    x[batch.rows[~chosen], batch.columns[~chosen]] = 0
    assert fewer.ptr.tolist() == [0, *x.sum(1).cumsum(0).long().tolist()]
    assert torch.equal(fewer.order, torch.argsort(fewer.columns, stable=True))
    table = torch.randn(x.shape[1], 3, dtype=torch.float64)
    torch.testing.assert_close(weighted_rows(fewer, table, torch.ones(1, x.shape[1]).double())[0], x @ table)
