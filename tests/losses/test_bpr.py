"""BPR: the full-batch form against the plain one, and the invariants of the loss."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.losses.bpr import bpr_batch, bpr_full


def graph_of(counts):
    counts = np.asarray(counts)
    users, items = np.nonzero(counts)
    repeats = counts[users, items]
    log = Interactions.from_indices(np.repeat(users, repeats), np.repeat(items, repeats), *counts.shape)
    return BipartiteGraph.from_interactions(log)


def random_counts(n, m, share, most, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(1, most + 1, (n, m)) * (rng.random((n, m)) < share)


def with_a_user_of_every_item():
    counts = random_counts(9, 7, 0.3, 1, 1)
    counts[3] = 1
    return counts


GRAPHS = {
    "plain": random_counts(12, 9, 0.3, 1, 0),
    "user with every item": with_a_user_of_every_item(),
    "repeated edges": random_counts(8, 6, 0.4, 5, 2),
    "isolated user and item": np.pad(np.eye(3, dtype=int), ((1, 2), (2, 1))),
    "one edge": np.array([[0, 1, 0]]),
    "more repeats than pairs": np.array([[40, 0, 0], [0, 25, 3]]),
    "one user": np.array([[1, 0, 1, 1, 0, 0, 1]]),
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return graph_of(GRAPHS[request.param])


def rows_of(graph, seed, d=4, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=generator) * scale


def all_triples(graph, seed=0, step=1):
    return graph.edge_users, graph.edge_items, NegativeSampler.of(graph).draw(seed, step)


def loss_and_gradients(loss, z, table):
    z, table = z.clone().requires_grad_(), table.clone().requires_grad_()
    value = loss(z, table)
    (value * 3).backward()  # not 1, so that a backward that ignores its gradient shows
    return value.detach(), z.grad, table.grad


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_full_batch_equals_the_batch_of_all_edges(graph, l2):
    triples = all_triples(graph)
    z, table = rows_of(graph, 1), rows_of(graph, 2)
    full = loss_and_gradients(lambda z, table: bpr_full(graph, z, table, triples[2], l2), z, table)
    plain = loss_and_gradients(lambda z, table: bpr_batch(z, table, triples, l2), z, table)
    for got, wanted in zip(full, plain, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_full_batch_takes_one_table_as_rows_and_as_penalised_rows():
    graph = graph_of(GRAPHS["repeated edges"])
    triples, table = all_triples(graph), rows_of(graph, 3)
    grads = []
    for loss in (lambda z: bpr_full(graph, z, z, triples[2], 0.1), lambda z: bpr_batch(z, z, triples, 0.1)):
        z = table.clone().requires_grad_()
        loss(z).backward()
        grads.append(z.grad)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


def test_full_batch_agrees_with_finite_differences(graph):
    negatives = all_triples(graph)[2]
    z, table = rows_of(graph, 4, d=2).requires_grad_(), rows_of(graph, 5, d=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, table: bpr_full(graph, z, table, negatives, 0.3), (z, table))


def test_batch_agrees_with_finite_differences_with_repeated_users_and_items():
    z, table = (torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    triples = torch.tensor([0, 0, 1, 1]), torch.tensor([3, 3, 4, 5]), torch.tensor([4, 5, 3, 3])
    inputs = z.requires_grad_(), table.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, table: bpr_batch(z, table, triples, 0.3), inputs)


@pytest.mark.parametrize("l2", [0.0, 1.0, 100.0])
def test_all_zero_rows_cost_ln_two_for_any_penalty(graph, l2):
    zeros, triples = rows_of(graph, 0, scale=0.0), all_triples(graph)
    for value in (bpr_full(graph, zeros, zeros, triples[2], l2), bpr_batch(zeros, zeros, triples, l2)):
        assert value.item() == pytest.approx(math.log(2), abs=1e-15)


def test_rows_at_the_scale_of_the_start_cost_about_ln_two():
    graph = graph_of(random_counts(150, 100, 0.1, 1, 3))
    assert graph.num_edges >= 1000
    z = rows_of(graph, 6, d=64, scale=0.1)
    assert bpr_full(graph, z, z, all_triples(graph)[2], 0.0).item() == pytest.approx(math.log(2), abs=0.02)


def test_swapping_positive_and_negative_changes_each_term_by_its_margin(graph):
    z = rows_of(graph, 7)
    users, positives, negatives = all_triples(graph)
    margin = (z[users.long()] * (z[positives.long()] - z[negatives.long()])).sum(1)
    straight = bpr_batch(z, z, (users, positives, negatives), 0.0)
    swapped = bpr_batch(z, z, (users, negatives, positives), 0.0)
    torch.testing.assert_close(straight, softplus(-margin).mean())
    torch.testing.assert_close(swapped - straight, margin.mean())


def test_the_penalty_pulls_each_user_by_its_share_of_the_edges(graph):
    l2, n = 0.7, graph.num_users
    table = rows_of(graph, 8).requires_grad_()
    negatives = all_triples(graph)[2]
    bpr_full(graph, rows_of(graph, 9), table, negatives, l2).backward()
    share = graph.degree + torch.bincount(negatives, minlength=graph.num_nodes)
    torch.testing.assert_close(table.grad[:n], l2 * (graph.degree[:n] / graph.num_edges)[:, None] * table[:n].detach())
    torch.testing.assert_close(table.grad, l2 * (share / graph.num_edges)[:, None] * table.detach())


def test_a_user_with_every_item_feels_no_ranking_gradient():
    graph = graph_of(GRAPHS["user with every item"])
    z = rows_of(graph, 10).requires_grad_()
    bpr_full(graph, z, z.detach(), all_triples(graph)[2], 0.0).backward()
    assert z.grad[3].abs().max() < 1e-15
    assert z.grad[:3].abs().max() > 0


def test_a_hopeless_margin_keeps_loss_and_gradient_finite():
    graph = graph_of(GRAPHS["plain"])
    z = (rows_of(graph, 11) * 300).float().requires_grad_()
    value = bpr_full(graph, z, z, all_triples(graph)[2], 1e-4)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(z.grad).all()
