"""The structural encoding: a factorisation of the interaction matrix."""

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import structural_encoding as module
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.layers.structural_encoding import structural_encoding


def graph_of(n, m, size, seed=0):
    pairs = np.random.default_rng(seed).choice(n * m, size)  # with duplicates
    return BipartiteGraph.from_interactions(Interactions.from_indices(pairs // m, pairs % m, n + 1, m + 1))


def product(graph, encoding):
    return encoding[: graph.num_users] @ encoding[graph.num_users :].T


@pytest.mark.parametrize(("n", "m"), [(12, 9), (9, 12), (1, 1)])
def test_with_all_singular_values_it_is_the_matrix_itself(n, m):
    graph = graph_of(n, m, 3 * max(n, m))
    encoding = structural_encoding(graph, 16, seed=0)
    torch.testing.assert_close(product(graph, encoding), count_matrix(graph, torch.float32), rtol=1e-5, atol=1e-5)
    assert encoding[n].abs().sum() == encoding[-1].abs().sum() == 0, "a node without interactions has zeros"


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("small_side", [512, 4], ids=["whole", "iterated"])
def test_with_fewer_it_is_the_best_approximation(normalized, small_side, monkeypatch):
    monkeypatch.setattr(module, "_SMALL_SIDE", small_side)
    graph = graph_of(30, 20, 150)
    matrix = count_matrix(graph, torch.float64)
    if normalized:
        matrix = matrix * matrix.sum(1, keepdim=True).clamp(min=1).rsqrt() * matrix.sum(0).clamp(min=1).rsqrt()
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    encoding = structural_encoding(graph, 5, seed=0, normalized=normalized)
    best = (u[:, :5] * s[:5]) @ v[:5]
    torch.testing.assert_close(product(graph, encoding).double(), best, rtol=1e-4, atol=1e-5)
    for side in (encoding[:31], encoding[31:]):
        torch.testing.assert_close(side.double().square().sum(0), s[:5], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(("n", "m"), [(400, 250), (250, 400)])
@pytest.mark.parametrize("rank", [None, 7])
def test_the_quick_iteration_finds_the_same(n, m, rank, normalized, monkeypatch):
    monkeypatch.setattr(module, "_MEDIUM_SIDE", 4)
    graph = graph_of(n, m, 3000)
    if rank is not None:  # blocks of users with the same items
        users, items = (each.ravel() for each in np.meshgrid(np.arange(n), np.arange(m), indexing="ij"))
        same = users % rank == items % rank
        graph = BipartiteGraph.from_pairs(users[same], items[same], n, m)
    exact = structural_encoding(graph, 12, seed=0, normalized=normalized)
    quick = structural_encoding(graph, 12, seed=0, normalized=normalized, exact=False)
    torch.testing.assert_close(quick.square().sum(0), exact.square().sum(0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(product(graph, quick), product(graph, exact), rtol=0, atol=2e-3)


def test_signs_are_settled():
    graph = graph_of(30, 20, 150)
    first, other = (structural_encoding(graph, 4, seed) for seed in (0, 1))
    torch.testing.assert_close(first, other)
    items = first[graph.num_users :]
    assert (items.gather(0, items.abs().argmax(0, keepdim=True)) > 0).all()
