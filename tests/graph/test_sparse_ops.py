"""The sparse primitives against dense matrices, values and gradients, in float64."""

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import (
    at_items,
    at_users,
    edge_dot,
    item_sums,
    row_dot,
    spmm,
    two_way,
    user_sums,
)


def graph_of(counts, dtype=torch.float64):
    """The graph with counts[u, i] parallel edges between u and i, its log in random order."""
    counts = np.asarray(counts)
    users, items = np.nonzero(counts)
    times = counts[users, items]
    users, items = np.repeat(users, times), np.repeat(items, times)
    order = np.random.default_rng(0).permutation(len(users))
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(users[order], items[order], *counts.shape), dtype=dtype
    )


def sparse_counts(n, m, density, most, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(1, most + 1, (n, m)) * (rng.random((n, m)) < density)


GRAPHS = {
    "plain": sparse_counts(7, 5, 0.4, 1, 0),
    "wide": sparse_counts(3, 40, 0.3, 1, 1),
    "tall": sparse_counts(40, 3, 0.3, 1, 2),
    "parallel edges": sparse_counts(6, 6, 0.5, 4, 3),
    "isolated user and item": np.pad(np.ones((3, 3), dtype=int), ((1, 2), (2, 1))),
    "complete": np.ones((4, 5), dtype=int),
    "one edge": np.array([[0, 1]]),
    "more duplicates than pairs": np.array([[30, 0], [11, 25]]),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return graph_of(GRAPHS[request.param])


def rows_of(graph, seed, d=4, dtype=torch.float64):
    return torch.randn(graph.num_nodes, d, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def edge_values(graph, seed):
    return torch.randn(graph.num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def positions(graph):
    return graph.edge_users.long(), graph.edge_items.long() - graph.num_users


def dense_matrix(graph, weights):
    """The (n, m) matrix of edge values, parallel edges added up."""
    zeros = weights.new_zeros(graph.num_users, graph.num_items)
    return zeros.index_put(positions(graph), weights, accumulate=True)


def dense_propagate(graph, weights, rows):
    matrix, n = dense_matrix(graph, weights), graph.num_users
    return torch.cat([matrix @ rows[n:], matrix.T @ rows[:n]])


def test_edge_dot_is_the_dense_product_at_the_edges(graph):
    left, right = rows_of(graph, 1), rows_of(graph, 2)
    n = graph.num_users
    torch.testing.assert_close(edge_dot(graph, left, right), (left[:n] @ right[n:].T)[positions(graph)])


def test_edge_dot_adds_to_given_values_in_place(graph):
    left, right, initial = rows_of(graph, 1), rows_of(graph, 2), edge_values(graph, 3)
    wanted = initial + edge_dot(graph, left, right)
    result = edge_dot(graph, left, right, add_to=initial)
    assert result is initial
    torch.testing.assert_close(result, wanted)


def test_edge_dot_remembers_nothing_between_calls(graph):
    left, right = rows_of(graph, 1), rows_of(graph, 2)
    first = edge_dot(graph, left, right)
    kept = first.clone()
    edge_dot(graph, right, left, add_to=edge_values(graph, 3))
    assert torch.equal(edge_dot(graph, left, right), kept)
    assert torch.equal(first, kept), "a later call wrote into an earlier result"


@pytest.mark.parametrize("rows_type", [torch.float32, torch.float64])
@pytest.mark.parametrize("graph_type", [torch.float32, torch.float64])
def test_edge_dot_follows_the_type_of_its_rows(graph_type, rows_type):
    graph = graph_of(GRAPHS["parallel edges"], graph_type)
    left, right = rows_of(graph, 1), rows_of(graph, 2)
    got = edge_dot(graph, left.to(rows_type), right.to(rows_type))
    assert got.dtype == rows_type
    torch.testing.assert_close(got.double(), edge_dot(graph, left, right), rtol=1e-5, atol=1e-5)


def test_spmm_sums_neighbour_rows_of_users_and_items(graph):
    weights, rows = edge_values(graph, 4), rows_of(graph, 5)
    torch.testing.assert_close(spmm(graph, two_way(graph, weights), rows), dense_propagate(graph, weights, rows))


def test_spmm_may_weigh_the_two_directions_differently(graph):
    forth, back, rows, n = edge_values(graph, 6), edge_values(graph, 7), rows_of(graph, 8), graph.num_users
    weights = torch.cat([forth, two_way(graph, back)[graph.num_edges :]])
    got = spmm(graph, weights, rows)
    torch.testing.assert_close(got[:n], dense_propagate(graph, forth, rows)[:n])
    torch.testing.assert_close(got[n:], dense_propagate(graph, back, rows)[n:])


def test_sums_equal_the_row_and_column_sums_of_the_dense_matrix(graph):
    values = edge_values(graph, 9)
    matrix = dense_matrix(graph, values)
    torch.testing.assert_close(user_sums(graph, values), matrix.sum(1))
    torch.testing.assert_close(item_sums(graph, values), matrix.sum(0))


def test_values_of_nodes_spread_to_their_edges(graph):
    values = torch.randn(graph.num_nodes, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    users, items = positions(graph)
    assert torch.equal(at_users(graph, values[: graph.num_users]), values[users])
    assert torch.equal(at_items(graph, values), values[items + graph.num_users])


def test_row_dot_is_the_product_of_matching_rows():
    left, right = torch.randn(2, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(row_dot(left, right), (left * right).sum(1))


def test_the_gradients_of_spmm_are_spmm_and_edge_dot(graph):
    weights, rows, probe = (
        edge_values(graph, 10).requires_grad_(),
        rows_of(graph, 11).requires_grad_(),
        rows_of(graph, 12),
    )
    (dense_propagate(graph, weights, rows) * probe).sum().backward()
    by_weights = edge_dot(graph, rows.detach(), probe, add_to=edge_dot(graph, probe, rows.detach()))
    torch.testing.assert_close(by_weights, weights.grad)
    torch.testing.assert_close(spmm(graph, two_way(graph, weights.detach()), probe), rows.grad)


def test_spmm_takes_rows_that_are_not_contiguous(graph):
    weights, one = edge_values(graph, 18), torch.ones((), dtype=torch.float64)
    expanded = one.expand(graph.num_nodes, 4)  # as the gradient of a sum is
    got = spmm(graph, two_way(graph, weights), expanded)
    torch.testing.assert_close(got, dense_propagate(graph, weights, expanded.contiguous()))
