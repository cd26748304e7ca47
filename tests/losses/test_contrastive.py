"""InfoNCE by its identities, the nodes of a batch, and the joint loss against its definition."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from rankformer.data.interactions import Interactions
from rankformer.graph.batch import Batch, Triples
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.losses.bpr import bpr
from rankformer.losses.contrastive import BatchNodes, Views, contrastive_loss, info_nce, take_rows
from rankformer.losses.l2 import batch_l2


def rows_of(size, seed, d=4):
    return torch.randn(size, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def textbook(x, y, temperature):
    return cross_entropy(normalize(x) @ normalize(y).T / temperature, torch.arange(len(x)))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 2**31), st.floats(0.01, 3))
def test_values_and_gradients_are_those_of_the_textbook(size, d, seed, temperature):
    x, y = rows_of(size, seed, d).requires_grad_(), rows_of(size, seed + 1, d).requires_grad_()
    got, wanted = info_nce(x, y, temperature), textbook(x, y, temperature)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    slopes = torch.autograd.grad(got * 3, (x, y)), torch.autograd.grad(wanted * 3, (x, y))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_a_batch_of_more_than_one_block_is_one_loss():
    x, y = rows_of(1500, 0, 8).requires_grad_(), rows_of(1500, 1, 8).requires_grad_()
    got, wanted = info_nce(x, y, 0.15), textbook(x, y, 0.15)
    torch.testing.assert_close(got, wanted)
    for one, other in zip(torch.autograd.grad(got, (x, y)), torch.autograd.grad(wanted, (x, y)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("size", [1, 2, 17])
@pytest.mark.parametrize("temperature", [0.005, 0.15, 2.0])
def test_identical_rows_cost_the_logarithm_of_their_number(size, temperature):
    rows = rows_of(1, 0).repeat(size, 1)
    assert info_nce(rows, rows, temperature).item() == pytest.approx(math.log(size), abs=1e-9)


def test_orthonormal_rows_cost_what_the_formula_says():
    got = info_nce(torch.eye(64), torch.eye(64), 0.15).item()
    assert got == pytest.approx(math.log(1 + 63 * math.exp(-1 / 0.15)), rel=1e-5)
    assert got == pytest.approx(0.0771239, abs=1e-6)


def test_only_directions_count_and_the_order_of_the_pairs_does_not():
    x, y = rows_of(9, 2), rows_of(9, 3)
    value = info_nce(x, y, 0.2)
    scale = torch.linspace(0.01, 50, 9, dtype=torch.float64)[:, None]
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(info_nce(x * scale, y * scale.flip(0), 0.2), value)
    torch.testing.assert_close(info_nce(x[order], y[order], 0.2), value)


def test_anchors_choose_among_candidates_and_not_the_other_way_round():
    x, y = rows_of(9, 2), rows_of(9, 3)
    assert abs(info_nce(x, y, 0.2) - info_nce(y, x, 0.2)) > 1e-3


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(0, 2**31), st.floats(0.002, 2))
def test_the_loss_keeps_within_its_bounds_in_single_precision(size, seed, temperature):
    x, y = rows_of(size, seed, 3).float().requires_grad_(), rows_of(size, seed + 1, 3).float()
    value = info_nce(x, y, temperature)
    assert -1e-4 / temperature <= value.item() <= (2 / temperature + math.log(size)) * (1 + 1e-5)
    assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


def test_a_row_of_zeros_is_like_nothing_and_gets_no_gradient():
    x, y = rows_of(4, 4).index_fill(0, torch.tensor([2]), 0.0).requires_grad_(), rows_of(4, 5)
    value = info_nce(x, y, 0.1)
    slope = torch.autograd.grad(value, x)[0]
    assert torch.isfinite(value)
    assert torch.isfinite(slope).all()
    assert not slope[2].any()
    assert slope[[0, 1, 3]].any(1).all()


@pytest.fixture(scope="module")
def graph():
    """Duplicate interactions; user 2 and item 5 have none."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 3, (9, 8)) * (rng.random((9, 8)) < 0.4)
    counts[2], counts[:, 5] = 0, 0
    users, items = np.nonzero(counts)
    times = counts[users, items]
    log = Interactions.from_indices(np.repeat(users, times), np.repeat(items, times), *counts.shape)
    return BipartiteGraph.from_interactions(log)


EDGES = [3, 0, 20, 7, 7, 11]


def terms(l2, cl_weight, l2_on="initial"):
    """The settings that the loss reads."""
    return SimpleNamespace(loss="bpr", l2=l2, l2_on=l2_on, cl_weight=cl_weight, cl_temperature=0.4)


def nodes_of(triples):
    return triples.users, triples.positives, triples.negatives


def batch_of(graph, edges):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=1)


@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
def test_a_batch_knows_its_distinct_users_and_positives_and_finds_its_triples(graph, edges):
    batch = batch_of(graph, edges)
    chosen = BatchNodes.of(graph, batch)
    which = slice(None) if edges is None else torch.tensor(edges)
    wanted = graph.edge_users[which], graph.edge_items[which], batch.negatives
    for positions, nodes in zip(nodes_of(chosen.triples), wanted, strict=True):
        assert torch.equal(chosen.nodes[positions.long()], nodes.long())
    assert sorted(chosen.nodes[chosen.users].tolist()) == sorted(set(wanted[0].tolist()))
    assert sorted(chosen.nodes[chosen.items].tolist()) == sorted(set(wanted[1].tolist()))
    assert len(set(chosen.nodes.tolist())) == len(chosen.nodes)
    if edges is not None:
        assert set(chosen.nodes.tolist()) == {node for nodes in wanted for node in nodes.tolist()}


@pytest.mark.parametrize("l2_on", ["initial", "final"])
@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
def test_the_loss_is_ranking_loss_l2_and_contrastive_loss_by_their_definitions(graph, edges, l2_on):
    whole = [rows_of(graph.num_nodes, seed).requires_grad_() for seed in (6, 7, 8)]
    final, view, table = whole
    batch, l2 = batch_of(graph, edges), 0.3
    chosen = BatchNodes.of(graph, batch)
    views = Views(*(take_rows(rows, chosen.nodes) for rows in whole))
    got = contrastive_loss(chosen, views, terms(l2, 0.7, l2_on))

    which = slice(None) if edges is None else torch.tensor(edges)
    users, items = graph.edge_users[which].long(), graph.edge_items[which].long()
    triples = Triples(users, items, batch.negatives)
    wanted = bpr(final, triples)
    if l2_on == "initial":
        wanted = wanted + batch_l2(table, triples, l2)
    else:
        wanted = wanted + l2 * (final[users].square().sum().sqrt() + final[items].square().sum().sqrt()) / len(users)
    for nodes in (users.unique(), items.unique()):
        wanted = wanted + 0.7 * textbook(final[nodes], view[nodes], 0.4)
    torch.testing.assert_close(got, wanted)
    slopes = (torch.autograd.grad(loss, whole, allow_unused=True, materialize_grads=True) for loss in (got, wanted))
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)


def test_without_weight_the_contrastive_loss_does_not_even_run(graph):
    chosen = BatchNodes.of(graph, batch_of(graph, EDGES))
    final, table = rows_of(len(chosen.nodes), 1), rows_of(len(chosen.nodes), 2)
    broken = torch.full_like(final, math.nan)
    loss = contrastive_loss(chosen, Views(final, broken, table), terms(0.1, 0.0))
    torch.testing.assert_close(loss, bpr(final, chosen.triples) + batch_l2(table, chosen.triples, 0.1))


@pytest.mark.parametrize("l2_on", ["initial", "final"])
def test_rows_of_zeros_give_finite_gradients(graph, l2_on):
    chosen = BatchNodes.of(graph, batch_of(graph, EDGES))
    rows = [torch.zeros(len(chosen.nodes), 3, requires_grad=True) for _ in range(3)]
    loss = contrastive_loss(chosen, Views(*rows), terms(0.1, 1.0, l2_on))
    distinct = [len(chosen.nodes[anchors]) for anchors in (chosen.users, chosen.items)]
    assert loss.item() == pytest.approx(math.log(2) + sum(math.log(number) for number in distinct), rel=1e-6)
    slopes = torch.autograd.grad(loss, rows, allow_unused=True, materialize_grads=True)
    assert all(torch.isfinite(slope).all() for slope in slopes)


def test_taking_rows_gives_gradient_to_them_alone():
    rows, nodes = rows_of(6, 9).requires_grad_(), torch.tensor([4, 1])
    assert torch.equal(take_rows(rows, nodes), rows[nodes])
    assert torch.autograd.gradcheck(lambda v: take_rows(v, nodes), rows)
