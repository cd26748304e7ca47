"""Weighted alternating least squares against its normal equations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.logs import random_log
from tests.repeated_logs import weighted_and_repeated

from rankformer.data.interactions import Interactions
from rankformer.graph import least_squares
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors

WEIGHT, REGULARIZATION = 9.0, 0.0875  # 0.7 in units of the weight form


@pytest.fixture(scope="module")
def graph():
    """Two tastes, a user and an item without interactions, an interaction of its own, a duplicate interaction."""
    pairs = [(u, i) for u in range(8) for i in range(6) if (u + i) % 2 == 0] + [(0, 0), (9, 7)]
    users, items = np.array(pairs).T
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, items, 10, 8))


def counts_of(graph):
    counts = torch.zeros(graph.num_users, graph.num_items, dtype=torch.float64)
    indices = graph.edge_users.long(), graph.edge_items.long() - graph.num_users
    return counts.index_put_(indices, torch.ones(graph.num_edges, dtype=torch.float64), accumulate=True)


def solve_dense(counts, fixed, exponent):
    """Factors of one side by the normal equations, the other side's being fixed."""
    rows = []
    for count in counts:
        strength = (WEIGHT - 1) * REGULARIZATION * (float(count.sum()) + len(count) / (WEIGHT - 1)) ** exponent
        matrix = fixed.T @ fixed + strength * torch.eye(fixed.shape[1], dtype=torch.float64)
        matrix = matrix + (WEIGHT - 1) * (fixed.T * count) @ fixed
        rows.append(torch.linalg.solve(matrix, WEIGHT * fixed.T @ count))
    return torch.stack(rows)


def factors_of(graph, iterations, dim=4, seed=0, exponent=0.0, linear=False):
    return least_squares_factors(
        graph,
        dim,
        seed,
        weight=WEIGHT,
        regularization=REGULARIZATION,
        frequency_exponent=exponent,
        iterations=iterations,
        linear_iterations=iterations if linear else 0,
    ).double()


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_after_many_iterations_the_items_solve_their_normal_equations_and_nearly_so_the_users(graph, exponent, linear):
    factors, n, counts = factors_of(graph, 60, exponent=exponent, linear=linear), graph.num_users, counts_of(graph)
    torch.testing.assert_close(factors[n:], solve_dense(counts.T, factors[:n], exponent), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(factors[:n], solve_dense(counts, factors[n:], exponent), rtol=1e-2, atol=1e-3)


def test_it_separates_the_tastes(graph):
    factors, n = factors_of(graph, 15), graph.num_users
    scores = factors[:n] @ factors[n:].T
    liked = torch.tensor([[(u + i) % 2 == 0 for i in range(6)] for u in range(8)])
    assert float(scores[:8, :6][liked].min()) > float(scores[:8, :6][~liked].max()) + 0.3


@pytest.mark.parametrize("linear", [False, True])
def test_nodes_without_interactions_end_at_zero(graph, linear):
    factors = factors_of(graph, 15, linear=linear)
    assert float(factors[8].abs().max()) < 1e-6
    assert float(factors[graph.num_users + 6].abs().max()) < 1e-6


def test_the_seed_decides_the_initialization_and_nothing_else_is_random(graph):
    assert torch.equal(factors_of(graph, 3), factors_of(graph, 3))
    assert not torch.equal(factors_of(graph, 1), factors_of(graph, 1, seed=1))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_integer_weights_are_duplicates_and_others_solve_their_normal_equations(exponent, linear):
    weighted, repeated = (BipartiteGraph.from_interactions(log, weighted=True) for log in weighted_and_repeated())
    pair = (factors_of(graph, 5, exponent=exponent, linear=linear) for graph in (weighted, repeated))
    torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-4)
    log = replace(random_log(), weights=np.random.default_rng(0).uniform(0.1, 6, 60).astype(np.float32))
    graph = BipartiteGraph.from_interactions(log, weighted=True)
    factors, n = factors_of(graph, 500, exponent=exponent, linear=linear), graph.num_users
    x = torch.from_numpy(graph.interaction_matrix(count_duplicates=True).toarray()).double()
    torch.testing.assert_close(factors[n:], solve_dense(x.T, factors[:n], exponent), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_the_bound_of_the_eigenvalues_holds_and_is_the_trace_where_all_rows_are_regularized_alike(exponent):
    log = replace(random_log(), weights=np.random.default_rng(0).uniform(0.1, 6, 60).astype(np.float32))
    graph = BipartiteGraph.from_interactions(log, weighted=True)
    n, factors = graph.num_users, torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    others = torch.full_like(graph.degree, 20)
    strength, least = (
        least_squares.row_regularization(degree, others, WEIGHT, REGULARIZATION, exponent).float()
        for degree in (graph.degree, 0 * graph.degree)
    )
    equations, _ = least_squares._normal_equations(graph, factors, True, WEIGHT, strength, least)
    bound = least_squares._trace(equations)[:, 0]
    x = torch.from_numpy(graph.interaction_matrix(count_duplicates=True).toarray())
    items = factors[n:]
    per_pair = (WEIGHT - 1) * torch.stack(
        [(items @ torch.linalg.inv(items.T @ items + each * torch.eye(4)) * items).sum(1) for each in strength[:n]]
    )
    trace = (x * per_pair).sum(1)
    assert bool((bound >= trace * (1 - 1e-4)).all())
    if exponent == 0:
        torch.testing.assert_close(bound, trace, rtol=1e-4, atol=1e-5)
