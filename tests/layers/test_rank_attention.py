"""The linear form against the dense reference, and the invariants of the layer."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import RankWeights, rank_attention, rank_attention_reference
from rankformer.layers.rank_attention_reference import count_matrix

VARIANTS = {
    "rankformer": RankWeights(),
    "large offset": RankWeights(alpha=3.5),
    "no negatives": RankWeights(negatives="none"),
    "no benchmark": RankWeights(benchmark=False),
    "no offset": RankWeights(alpha=0.0),
    "small offset": RankWeights(alpha=0.7),
    "no offset, no benchmark": RankWeights(alpha=0.0, benchmark=False),
    "no normalisation": RankWeights(normalize=False),
    "no similarity": RankWeights(similarity=False, benchmark=False),
    "lightgcn": RankWeights.lightgcn(),
    "gat": RankWeights.gat(),
    "transformer": RankWeights.transformer(),
}


def make_graph(users, items, n, m):
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, items, n, m), dtype=torch.float64)


@st.composite
def graphs(draw, repeats: bool):
    """Ragged graphs; user 0 has every item, user 1 none, item 0 of the last column may have none but user 0."""
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 8))
    counts = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 3 if repeats else 1)))
    counts[1] = 0
    if draw(st.booleans()):
        counts[0] = 1
    if draw(st.booleans()):
        counts[:, -1] = 0
    if counts.sum() == 0:
        counts[0, 0] = 1
    users, items = np.nonzero(counts)
    reps = counts[users, items]
    return make_graph(np.repeat(users, reps), np.repeat(items, reps), n, m)


def exact_alpha(graph):
    """The smallest offset at which no absolute value of Eq. 8 can be active: 2 without parallel edges."""
    c = count_matrix(graph, torch.float64)
    e_u = (graph.num_items - graph.degree[: graph.num_users]).clamp(min=1)
    return 1 + float(((1 - c).abs().sum(1) / e_u).max().clamp(min=1))


def outputs_and_gradient(layer, z, probe):
    z = z.clone().requires_grad_()
    out = layer(z)
    (out * probe).sum().backward()
    return out.detach(), z.grad


def assert_same(graph, z, weights, tau, seed, estimate):
    probe = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(seed))
    fast = outputs_and_gradient(lambda v: rank_attention(graph, v, weights, tau), z, probe)
    slow = outputs_and_gradient(lambda v: rank_attention_reference(graph, v, weights, tau, estimate=estimate), z, probe)
    for got, wanted in zip(fast, slow, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def random_rows(graph, seed, d=5):
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=150, deadline=None)
@given(graphs(repeats=True), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 3))
def test_linear_form_equals_dense_equations_with_repeated_edges_and_degenerate_users(graph, seed, tau, extra):
    weights = RankWeights(alpha=exact_alpha(graph) + extra)
    assert_same(graph, random_rows(graph, seed), weights, tau, seed, estimate=False)


@settings(max_examples=100, deadline=None)
@given(graphs(repeats=False), st.integers(0, 2**31))
def test_alpha_two_is_exact_without_repeats(graph, seed):
    assert_same(graph, random_rows(graph, seed), RankWeights(alpha=2.0), 0.4, seed, estimate=False)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(graph=graphs(repeats=False), seed=st.integers(0, 2**31))
def test_every_variant_equals_the_reference_with_the_same_estimate(name, graph, seed):
    assert_same(graph, random_rows(graph, seed), VARIANTS[name], 0.6, seed, estimate=True)


@pytest.mark.parametrize("name", ["no negatives", "gat", "lightgcn", "no normalisation"])
@settings(max_examples=20, deadline=None)
@given(graph=graphs(repeats=False), seed=st.integers(0, 2**31))
def test_variants_called_exact_are_exact(name, graph, seed):
    assert VARIANTS[name].exact_normalizer
    assert_same(graph, random_rows(graph, seed), VARIANTS[name], 0.6, seed, estimate=False)
