"""What tables start from: ranges of the random kinds, the spectral table against a dense SVD, least squares."""

import math

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.initialization import LEAST_SQUARES, initialize_, random_table, spectral_table


def make_graph(n=60, m=40, size=400, seed=0):
    draw = np.random.default_rng(seed)
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(draw.integers(0, n, size), draw.integers(0, m, size), n, m)
    )


def normalized(graph):
    a = torch.zeros(graph.num_users, graph.num_items)
    one = torch.ones(())
    a.index_put_((graph.edge_users.long(), graph.edge_items.long() - graph.num_users), one, accumulate=True)
    shrink = graph.degree.clamp(min=1).rsqrt().float()
    return shrink[: graph.num_users, None] * a * shrink[graph.num_users :]


def test_the_leading_singular_pairs_are_found_and_paired():
    graph = make_graph()
    rows = spectral_table(graph, 4, seed=0, std=0.1)
    users, items = rows[:60] / (0.1 * 60**0.5), rows[60:] / (0.1 * 40**0.5)
    values = torch.linalg.svdvals(normalized(graph))[:4]
    torch.testing.assert_close(users.T @ users, torch.eye(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(items.T @ items, torch.eye(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(users.T @ normalized(graph) @ items, torch.diag(values), atol=2e-2, rtol=0)


def test_columns_beyond_the_rank_are_random():
    graph = make_graph(n=5, m=4, size=12)
    rows = spectral_table(graph, 16, seed=3)
    assert rows.shape == (9, 16)
    assert torch.isfinite(rows).all()
    assert rows[:, 4:].std() < 0.2
    assert (rows[:, 4:] != 0).all()


def test_a_seed_decides_the_spectral_table():
    graph = make_graph()
    assert torch.equal(spectral_table(graph, 8, 1), spectral_table(graph, 8, 1))
    assert not torch.equal(spectral_table(graph, 8, 1), spectral_table(graph, 8, 2))


def test_xavier_uniform_has_its_range_for_users_and_items_by_themselves():
    table = random_table("xavier-uniform", 9, 8, 32, seed=0)
    for part in (table[:9], table[9:]):
        bound = math.sqrt(6 / (len(part) + 32))
        assert 0.95 * bound < part.abs().max().item() <= bound
        assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)


def test_xavier_normal_has_its_range_for_users_and_items_together():
    table = random_table("xavier-normal", 90, 80, 32, seed=0)
    assert table.shape == (170, 32)
    assert table.std().item() == pytest.approx(math.sqrt(2 / (170 + 32)), rel=0.05)


@pytest.mark.parametrize("kind", ["normal", "spectral", "least-squares"])
def test_kinds_that_need_the_interactions_are_normal_before_they_see_them(kind):
    table = random_table(kind, 90, 80, 32, seed=0)
    assert table.std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(table, random_table("normal", 90, 80, 32, seed=0))


@pytest.mark.parametrize("kind", ["normal", "xavier-uniform", "xavier-normal"])
def test_a_seed_decides_a_random_table_which_stays_as_drawn(kind):
    table = random_table(kind, 60, 40, 8, seed=1)
    assert torch.equal(table, random_table(kind, 60, 40, 8, seed=1))
    assert not torch.equal(table, random_table(kind, 60, 40, 8, seed=2))
    drawn = table.clone()
    initialize_(table, make_graph(), kind, seed=1)
    assert torch.equal(table, drawn)


@pytest.mark.parametrize("kind", ["xavier-uniform", "xavier-normal"])
def test_a_given_generator_draws_the_xavier_kinds(kind):
    tables = [random_table(kind, 6, 4, 8, 0, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_the_spectral_initialization_is_the_spectral_table():
    graph = make_graph()
    table = torch.full((100, 32), 7.0)
    initialize_(table, graph, "spectral", seed=0)
    assert torch.equal(table, spectral_table(graph, 32, 0))
    assert table.std().item() == pytest.approx(0.1, rel=0.2)


def test_a_least_squares_table_has_entries_of_the_given_size_and_no_empty_embeddings():
    # A user and an item of their own, who share no interaction with the rest: least squares shrinks them to nothing.
    draw = np.random.default_rng(0)
    users, items = np.append(draw.integers(0, 60, 400), 60), np.append(draw.integers(0, 40, 400), 40)
    graph = BipartiteGraph.from_interactions(Interactions.from_indices(users, items, 62, 42))
    tables = []
    for scale in (1.0, 0.1):
        tables.append(random_table("least-squares", 62, 42, 8, seed=0))
        initialize_(tables[-1], graph, "least-squares", 0, scale)
    torch.testing.assert_close(tables[0] * 0.1, tables[1])
    for side in (tables[0][:60], tables[0][62:102]):
        assert side.square().mean().sqrt().item() == pytest.approx(1.0, rel=0.05)
    assert (torch.linalg.vector_norm(tables[0], dim=1) > 1e-3).all()
    lonely = random_table("least-squares", 62, 42, 8, seed=0)[[61, 103]]
    assert torch.equal(tables[0][[61, 103]], lonely)


def test_rounding_is_not_magnified_by_the_iterations_of_least_squares():
    draw, n, m, dim = np.random.default_rng(0), 1500, 1000, 16
    users, items = ((count * draw.random(40_000) ** 2).astype(int) for count in (n, m))
    graph = BipartiteGraph.from_interactions(Interactions.from_indices(users, items, n, m))
    start = torch.randn(n + m, dim, generator=torch.Generator().manual_seed(0)) * 0.025
    tables = (start, start * (1 + 1e-7 * torch.randn(n + m, dim, generator=torch.Generator().manual_seed(1))))
    one, other = (least_squares_factors(graph, dim, 0, **LEAST_SQUARES, start=each) for each in tables)
    size = one.square().mean().sqrt()
    assert float((one - other).abs().max() / size) < 5e-5  # 9e-4 by conjugate gradients
