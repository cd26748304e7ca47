"""BPR and batch L2: the full-batch forms against the plain ones, and the invariants of the loss."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.repeated_logs import weighted_and_repeated
from torch.nn.functional import softplus

from rankformer.data.interactions import Interactions
from rankformer.graph.batch import Batch, Triples
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.losses import RANKING_LOSSES
from rankformer.losses.bpr import bpr
from rankformer.losses.l2 import batch_l2
from rankformer.losses.settings import LossSettings


def graph_of(counts):
    counts = np.asarray(counts)
    users, items = np.nonzero(counts)
    times = counts[users, items]
    log = Interactions.from_indices(np.repeat(users, times), np.repeat(items, times), *counts.shape)
    return BipartiteGraph.from_interactions(log)


def random_counts(n, m, density, most, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(1, most + 1, (n, m)) * (rng.random((n, m)) < density)


def with_a_user_of_every_item():
    counts = random_counts(9, 7, 0.3, 1, 1)
    counts[3] = 1
    return counts


GRAPHS = {
    "plain": random_counts(12, 9, 0.3, 1, 0),
    "user with every item": with_a_user_of_every_item(),
    "parallel edges": random_counts(8, 6, 0.4, 5, 2),
    "isolated user and item": np.pad(np.eye(3, dtype=int), ((1, 2), (2, 1))),
    "one edge": np.array([[0, 1, 0]]),
    "more duplicates than pairs": np.array([[40, 0, 0], [0, 25, 3]]),
    "one user": np.array([[1, 0, 1, 1, 0, 0, 1]]),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return graph_of(GRAPHS[request.param])


def rows_of(graph, seed, d=4, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=generator) * scale


def all_triples(graph, seed=0, step=1):
    """The triples of all edges, once in the full-batch form and once as any other batch."""
    full = Batch(None, NegativeSampler.of(graph).draw(seed, step), seed, step).triples(graph)
    assert full.graph is graph
    return full, Triples(full.users, full.positives, full.negatives)


def loss_of(z, table, triples, l2):
    return bpr(z, triples) + batch_l2(table, triples, l2)


def loss_and_gradients(z, table, triples, l2):
    z, table = z.clone().requires_grad_(), table.clone().requires_grad_()
    value = loss_of(z, table, triples, l2)
    (value * 3).backward()  # not 1, so that a backward that ignores its gradient shows
    return value.detach(), z.grad, table.grad


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_full_batch_equals_the_batch_of_all_edges(graph, l2):
    z, table = rows_of(graph, 1), rows_of(graph, 2)
    full, plain = (loss_and_gradients(z, table, triples, l2) for triples in all_triples(graph))
    for got, wanted in zip(full, plain, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_full_batch_takes_one_table_as_final_and_as_regularized_embeddings():
    graph = graph_of(GRAPHS["parallel edges"])
    grads = []
    for triples in all_triples(graph):
        z = rows_of(graph, 3).requires_grad_()
        loss_of(z, z, triples, 0.1).backward()
        grads.append(z.grad)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


def test_full_batch_agrees_with_finite_differences(graph):
    full, _ = all_triples(graph)
    z, table = rows_of(graph, 4, d=2).requires_grad_(), rows_of(graph, 5, d=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, table: loss_of(z, table, full, 0.3), (z, table))


def test_batch_agrees_with_finite_differences_with_repeated_users_and_items():
    z, table = (torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    triples = Triples(torch.tensor([0, 0, 1, 1]), torch.tensor([3, 3, 4, 5]), torch.tensor([4, 5, 3, 3]))
    inputs = z.requires_grad_(), table.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, table: loss_of(z, table, triples, 0.3), inputs)


@pytest.mark.parametrize("l2", [0.0, 1.0, 100.0])
def test_all_zero_embeddings_cost_ln_two_for_any_l2(graph, l2):
    zeros = rows_of(graph, 0, scale=0.0)
    for triples in all_triples(graph):
        assert loss_of(zeros, zeros, triples, l2).item() == pytest.approx(math.log(2), abs=1e-15)


def test_embeddings_at_the_scale_of_the_initialization_cost_about_ln_two():
    graph = graph_of(random_counts(150, 100, 0.1, 1, 3))
    assert graph.num_edges >= 1000
    z = rows_of(graph, 6, d=64, scale=0.1)
    assert bpr(z, all_triples(graph)[0]).item() == pytest.approx(math.log(2), abs=0.02)


def test_swapping_positive_and_negative_changes_each_term_by_its_margin(graph):
    z = rows_of(graph, 7)
    _, triples = all_triples(graph)
    users, positives, negatives = (nodes.long() for nodes in (triples.users, triples.positives, triples.negatives))
    margin = (z[users] * (z[positives] - z[negatives])).sum(1)
    straight = bpr(z, triples)
    swapped = bpr(z, Triples(users, negatives, positives))
    torch.testing.assert_close(straight, softplus(-margin).mean())
    torch.testing.assert_close(swapped - straight, margin.mean())


def test_l2_pulls_each_user_by_its_fraction_of_the_edges(graph):
    l2, n = 0.7, graph.num_users
    table = rows_of(graph, 8).requires_grad_()
    full, _ = all_triples(graph)
    loss_of(rows_of(graph, 9), table, full, l2).backward()
    counts = graph.degree + torch.bincount(full.negatives, minlength=graph.num_nodes)
    torch.testing.assert_close(table.grad[:n], l2 * (graph.degree[:n] / graph.num_edges)[:, None] * table[:n].detach())
    torch.testing.assert_close(table.grad, l2 * (counts / graph.num_edges)[:, None] * table.detach())


def test_a_user_with_every_item_feels_no_ranking_gradient():
    graph = graph_of(GRAPHS["user with every item"])
    z = rows_of(graph, 10).requires_grad_()
    bpr(z, all_triples(graph)[0]).backward()
    assert z.grad[3].abs().max() < 1e-15
    assert z.grad[:3].abs().max() > 0


def test_a_hopeless_margin_keeps_loss_and_gradient_finite():
    graph = graph_of(GRAPHS["plain"])
    z = (rows_of(graph, 11) * 300).float().requires_grad_()
    value = loss_of(z, z, all_triples(graph)[0], 1e-4)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(z.grad).all()


def weighted_batches():
    """All edges of a weighted graph as both forms of a batch, and each as often as its weight says."""
    graph = BipartiteGraph.from_interactions(weighted_and_repeated()[0], weighted=True)
    full, _ = all_triples(graph)
    members = full.users, full.positives, full.negatives
    times = graph.edge_weights.long()
    return graph, full, Triples(*members, weights=full.weights), Triples(*(m.repeat_interleave(times) for m in members))


def test_a_weighted_loss_is_that_of_repeated_triples():
    graph, full, plain, repeated = weighted_batches()
    z, table = rows_of(graph, 1), rows_of(graph, 2)
    wanted = loss_and_gradients(z, table, repeated, 0.1)
    for triples in (full, plain):
        for got, expected in zip(loss_and_gradients(z, table, triples, 0.1), wanted, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-8)


def test_mini_batches_add_up_to_the_full_batch():
    graph, full, _, _ = weighted_batches()
    z, losses = rows_of(graph, 1), []
    for edges in torch.arange(graph.num_edges).split(20):
        losses.append(bpr(z, Batch(edges, full.negatives[edges], 0, 1).triples(graph)))
    torch.testing.assert_close(torch.stack(losses).mean(), bpr(z, full), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", RANKING_LOSSES)
def test_every_ranking_loss_takes_weights(name):
    graph, full, plain, _ = weighted_batches()
    z, loss = rows_of(graph, 1), partial(RANKING_LOSSES[name].of, settings=LossSettings())
    for triples in (full, plain):
        even = replace(triples, weights=torch.ones(len(triples)))
        torch.testing.assert_close(loss(z, even), loss(z, replace(triples, weights=None)), rtol=1e-6, atol=0)
        assert abs(float(loss(z, triples) - loss(z, even))) > 1e-4
