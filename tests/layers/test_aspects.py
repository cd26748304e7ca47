"""The arithmetic that DualVAE uses in training and in scoring, against loops and the dense matrix."""

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.aspects import (
    ACTIVATIONS,
    BinaryRows,
    mix_aspects,
    tanh_products,
    weighted_bags,
    weighted_rows,
)


def test_bags_are_weighted_sums_of_rows_for_each_aspect():
    table, weights = torch.randn(4, 3, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    columns, ptr = torch.tensor([1, 3, 0]), torch.tensor([0, 2, 2, 3])
    bags = weighted_bags(columns, ptr, table, weights)
    for aspect in range(2):
        first = weights[aspect, 1] * table[1] + weights[aspect, 3] * table[3]
        expected = torch.stack([first, torch.zeros(3), weights[aspect, 0] * table[0]])
        torch.testing.assert_close(bags[aspect], expected)


def test_products_pass_through_tanh_and_aspects_are_mixed():
    left, right, weights = torch.randn(3, 2, 4), torch.randn(3, 5, 4), torch.rand(3, 5)
    values = tanh_products(left, right)
    assert values[2, 1, 4].item() == pytest.approx(torch.tanh(left[2, 1] @ right[2, 4]).item(), abs=1e-6)
    torch.testing.assert_close(mix_aspects(values, weights), torch.einsum("abm,am->bm", values, weights))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_leave_their_input_alone(name):
    values = torch.tensor([-1.0, 0.5])
    activated = ACTIVATIONS[name](values)
    assert activated[0] < activated[1]
    assert values.tolist() == [-1.0, 0.5]


PAIRS = [(0, 1), (0, 3), (0, 1), (1, 0), (3, 3), (3, 1), (3, 1), (3, 1), (4, 2)]  # user 2 has none; duplicates
N, M = 5, 4


def dense():
    matrix = torch.zeros(N, M, dtype=torch.float64)
    for user, item in PAIRS:
        matrix[user, item] = 1
    return matrix


@pytest.fixture(scope="module")
def graph():
    users, items = np.array(PAIRS).T
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, items, N, M)).distinct()


# Nodes in any order, with one that has no row, of users and of items; and whether the matrix is turned over.
BATCHES = [([3, 0, 2], False), ([0, 1, 2, 3, 4], False), ([N + 1, N + 3], True), ([N + 3, N, N + 1, N + 2], True)]


@pytest.mark.parametrize(("nodes", "turned"), BATCHES)
def test_rows_hold_each_interaction_once(graph, nodes, turned):
    batch = BinaryRows.of(graph, torch.tensor(nodes))
    whole = dense().T if turned else dense()
    found = torch.zeros(batch.num_rows, whole.shape[1], dtype=torch.float64)
    found.index_put_((batch.rows, batch.columns), torch.ones(len(batch.rows), dtype=torch.float64), accumulate=True)
    assert torch.equal(found, whole[[node - N if turned else node for node in nodes]])
    assert bool((batch.columns[batch.order].diff() >= 0).all())


@pytest.mark.parametrize(("nodes", "turned"), BATCHES)
def test_the_sparse_layer_is_the_dense_one_with_its_gradients(graph, nodes, turned):
    batch = BinaryRows.of(graph, torch.tensor(nodes))
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
def test_chosen_entries_are_the_rows_without_the_others(graph, nodes, turned, drop):
    batch = BinaryRows.of(graph, torch.tensor(nodes))
    x = (dense().T if turned else dense())[[node - N if turned else node for node in nodes]]
    chosen = torch.tensor([position not in drop for position in range(len(batch.columns))])
    fewer = batch.where(chosen)
    x[batch.rows[~chosen], batch.columns[~chosen]] = 0
    assert fewer.ptr.tolist() == [0, *x.sum(1).cumsum(0).long().tolist()]
    assert torch.equal(fewer.order, torch.argsort(fewer.columns, stable=True))
    table = torch.randn(x.shape[1], 3, dtype=torch.float64)
    torch.testing.assert_close(weighted_rows(fewer, table, torch.ones(1, x.shape[1]).double())[0], x @ table)
