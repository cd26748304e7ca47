"""The softmax layer against its dense form, and as the gradient of its objective."""

import numpy as np
import pytest
import torch

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.rank_attention_reference import count_matrix, unit_rows
from rankformer.layers.softmax_attention import SoftmaxAttention, spread


def graph_of(n=12, m=9, seed=0):
    """User 0 has nothing, user 1 every item, some pairs are parallel edges, the last item has user 1 alone."""
    counts = np.random.default_rng(seed).integers(0, 3, (n, m)) * (np.random.default_rng(seed + 1).random((n, m)) < 0.3)
    counts[0], counts[1], counts[2:, -1] = 0, 1, 0
    users, items = np.nonzero(counts)
    times = counts[users, items]
    return BipartiteGraph.from_pairs(np.repeat(users, times), np.repeat(items, times), n, m, dtype=torch.float64)


def rows_of(graph, seed, d=4):
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def reference(graph, v, tau, temperature, samples):
    n, counts = graph.num_users, count_matrix(graph, v.dtype)
    x, sides = unit_rows(v), []
    for own, other, c in (
        (slice(0, n), torch.arange(n, graph.num_nodes), counts),
        (slice(n, None), torch.arange(n), counts.T),
    ):
        chosen = other[spread(0, len(other), samples, v.device)]
        degree = c.sum(1, keepdim=True)
        p = torch.softmax(x[own] @ x[chosen].T / temperature, dim=1)
        step = c @ v[other] / degree.clamp(min=1) - p @ v[chosen]
        sides.append((1 - tau) * v[own] + tau * step / (1 + (degree > 0)))
    return torch.cat(sides)


@pytest.mark.parametrize("samples", [1, 5, 100])
@pytest.mark.parametrize("zero_rows", [False, True])
def test_outputs_and_gradients_are_those_of_the_dense_form(samples, zero_rows):
    graph, results = graph_of(), []
    start, probe = rows_of(graph, 1), rows_of(graph, 2)
    if zero_rows:
        start[::5] = 0
    layer = SoftmaxAttention(0.4, 0.3, samples)
    for step in (lambda v: layer(graph, v), lambda v: reference(graph, v, 0.4, 0.3, samples)):
        v = start.clone().requires_grad_()
        out = step(v)
        (out * probe).sum().backward()
        results.append((out.detach(), v.grad))
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_a_user_climbs_its_softmax_objective():
    """On unit rows and over all items, the step is along the gradient of mean s/t - logsumexp s/t at the user."""
    graph = graph_of()
    v, n, t = unit_rows(rows_of(graph, 3)), graph.num_users, 0.7
    out = SoftmaxAttention(1.0, t, 100)(graph, v)
    for user in graph.edge_users.unique():
        own = graph.edge_items[graph.edge_users == user].long()
        row = v[user].clone().requires_grad_()
        (((v[own] @ row) / t).mean() - torch.logsumexp(v[n:] @ row / t, 0)).backward()
        torch.testing.assert_close(2 * out[user], t * row.grad)


def test_samples_are_distinct_and_spread_over_the_whole_range():
    chosen = spread(10, 110, 7, torch.device("cpu"))
    assert len(set(chosen.tolist())) == 7
    assert chosen.min() == 10
    assert chosen.diff().max() <= 15
    assert chosen.max() >= 95
    assert spread(3, 6, 10, torch.device("cpu")).tolist() == [3, 4, 5]


@pytest.mark.parametrize("wrong", [{"tau": 1.5}, {"temperature": 0.0}, {"samples": 0}])
def test_settings_without_a_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match="expected a step size in"):
        SoftmaxAttention(**{"tau": 0.5, "temperature": 0.5, "samples": 3, **wrong})
