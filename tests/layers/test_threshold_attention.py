"""TopKGAT's layer against its dense form."""

import pytest
import torch

from rankformer.layers.rank_attention_reference import count_matrix, unit_rows
from rankformer.layers.threshold_attention import threshold_attention

from .test_softmax_attention import graph_of, rows_of


def reference(graph, v, thresholds):
    n, counts = graph.num_users, count_matrix(graph, v.dtype)
    x = unit_rows(v)
    above = torch.sigmoid(x[:n] @ x[n:].T - thresholds[:, None])  # (n, m)
    degrees = counts.sum(1).clamp(min=1)[:, None] * counts.sum(0).clamp(min=1)
    w = counts * 4 * above * (1 - above) / degrees.sqrt()
    return torch.cat([w @ v[n:], w.T @ v[:n]])


def thresholds_of(graph, seed):
    return torch.tanh(torch.randn(graph.num_users, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("zero_rows", [False, True])
def test_outputs_and_gradients_are_those_of_the_dense_form(seed, zero_rows):
    graph, results = graph_of(seed=seed), []
    start, probe, limits = rows_of(graph, 1), rows_of(graph, 2), thresholds_of(graph, 3)
    if zero_rows:
        start[::3] = 0
    for layer in (threshold_attention, reference):
        v, t = start.clone().requires_grad_(), limits.clone().requires_grad_()
        out = layer(graph, v, t)
        (out * probe).sum().backward()
        results.append((out.detach(), v.grad, t.grad))
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_two_layers_agree_with_finite_differences():
    graph = graph_of(5, 4)
    v, t = rows_of(graph, 4, d=2).requires_grad_(), thresholds_of(graph, 5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v, t: threshold_attention(graph, threshold_attention(graph, v, t), t), (v, t)
    )


def test_a_node_without_interactions_gets_zero_and_passes_nothing_on():
    graph = graph_of()
    v, t = rows_of(graph, 6).requires_grad_(), thresholds_of(graph, 7).requires_grad_()
    out = threshold_attention(graph, v, t)
    assert (out[0] == 0).all()
    out.sum().backward()
    assert (v.grad[0] == 0).all()
    assert t.grad[0] == 0


def test_weights_are_largest_where_the_similarity_is_at_the_threshold():
    graph = graph_of()
    v = unit_rows(rows_of(graph, 8))
    user, item = int(graph.edge_users[-1]), int(graph.edge_items[-1])
    similarity, lengths = v[user] @ v[item], []
    for off in (-0.5, 0.0, 0.5):
        rows = torch.zeros_like(v)
        rows[user], rows[item] = v[user], v[item]  # all that the user receives comes from the item
        limits = (similarity + off).expand(graph.num_users)
        lengths.append(float(threshold_attention(graph, rows, limits)[user].norm()))
    assert lengths[1] > max(lengths[0], lengths[2]) > 0
