"""The spectral start against a dense SVD."""

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.spectral import spectral_rows


def make_graph(n=60, m=40, size=400, seed=0):
    draw = np.random.default_rng(seed)
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(draw.integers(0, n, size), draw.integers(0, m, size), n, m)
    )


def normalised(graph):
    a = torch.zeros(graph.num_users, graph.num_items)
    one = torch.ones(())
    a.index_put_((graph.edge_users.long(), graph.edge_items.long() - graph.num_users), one, accumulate=True)
    shrink = graph.degree.clamp(min=1).rsqrt().float()
    return shrink[: graph.num_users, None] * a * shrink[graph.num_users :]


def test_the_leading_singular_pairs_are_found_and_paired():
    graph = make_graph()
    rows = spectral_rows(graph, 4, seed=0, std=0.1)
    users, items = rows[:60] / (0.1 * 60**0.5), rows[60:] / (0.1 * 40**0.5)
    values = torch.linalg.svdvals(normalised(graph))[:4]
    torch.testing.assert_close(users.T @ users, torch.eye(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(items.T @ items, torch.eye(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(users.T @ normalised(graph) @ items, torch.diag(values), atol=2e-2, rtol=0)


def test_columns_beyond_the_rank_are_a_usual_random_start():
    graph = make_graph(n=5, m=4, size=12)
    rows = spectral_rows(graph, 16, seed=3)
    assert rows.shape == (9, 16)
    assert torch.isfinite(rows).all()
    assert rows[:, 4:].std() < 0.2
    assert (rows[:, 4:] != 0).all()


def test_a_seed_decides_the_start():
    graph = make_graph()
    assert torch.equal(spectral_rows(graph, 8, 1), spectral_rows(graph, 8, 1))
    assert not torch.equal(spectral_rows(graph, 8, 1), spectral_rows(graph, 8, 2))
