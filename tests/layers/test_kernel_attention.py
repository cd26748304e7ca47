"""Linear attention against its meaning: the explicit N x N matrix, outputs and gradients, in float64."""

import itertools

import numpy as np
import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.kernel_attention import (
    attention_reference,
    both_way_dots,
    key_sums,
    mapped_sums,
    masked_attention,
    mean_attention,
)

N, F, D, S = 20, 7, 5, 3


def positive(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.01


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def inputs():
    """Queries, keys, values and key weights, all asking for gradients."""
    tensors = positive(N, F), positive(N, F, seed=1), normal(N, D, seed=2), positive(N, S, seed=3)
    return [tensor.requires_grad_() for tensor in tensors]


def linear_mean(queries, keys, values, weights):
    return mean_attention(queries, *key_sums(keys, values, weights))


def explicit_mean(queries, keys, values, weights):
    return torch.stack([attention_reference(queries, keys, values, column) for column in weights.unbind(1)]).mean(0)


def linear_masked(queries, keys, values, weights, mask):
    return masked_attention(queries, mask, *key_sums(keys, values, weights))


def explicit_masked(queries, keys, values, weights, mask):
    return attention_reference(queries, keys, values, mask @ weights.T)


def agree(fast, slow, inputs):
    """Whether outputs and all gradients agree."""
    outputs = fast(*inputs), slow(*inputs)
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    direction = normal(*outputs[0].shape, seed=9)
    for got, expected in zip(*(torch.autograd.grad(out, inputs, direction) for out in outputs), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-12)


def test_the_mean_over_samples_is_that_of_the_explicit_matrices(inputs):
    agree(linear_mean, explicit_mean, inputs)


def test_one_sample_of_ones_is_plain_attention(inputs):
    ones = torch.ones(N, 1, dtype=torch.float64).requires_grad_()
    agree(linear_mean, lambda q, k, v, w: attention_reference(q, k, v, w.T), [*inputs[:3], ones])


def test_samples_one_by_one_give_the_same_mean(inputs):
    queries, keys, values, weights = inputs
    single = [linear_mean(queries, keys, values, column[:, None]) for column in weights.unbind(1)]
    torch.testing.assert_close(linear_mean(*inputs), torch.stack(single).mean(0), rtol=1e-12, atol=1e-12)


def test_masked_attention_is_that_of_the_explicit_matrix(inputs):
    agree(linear_masked, explicit_masked, [*inputs, positive(N, S, seed=4).requires_grad_()])


def test_some_queries_get_the_rows_that_all_would(inputs):
    queries, keys, values, weights = inputs
    mask, some = positive(N, S, seed=4), [3, 17, 3, 0]
    sums = key_sums(keys, values, weights)
    for attend in (mean_attention, lambda q, *sums: masked_attention(q, mask[: len(q)], *sums)):
        torch.testing.assert_close(attend(queries[:4], *sums), attend(queries, *sums)[:4], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(
        masked_attention(queries[some], mask[some], *sums), masked_attention(queries, mask, *sums)[some]
    )


def test_weights_are_never_negative_and_sum_to_one(inputs):
    queries, keys, _, weights = inputs
    everyone = torch.eye(N, dtype=torch.float64)
    for out in (
        linear_mean(queries, keys, everyone, weights),
        linear_masked(queries, keys, everyone, weights, positive(N, S, seed=4)),
    ):
        assert (out >= 0).all()
        torch.testing.assert_close(out.sum(1), torch.ones(N, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_constant_values_come_out_as_they_are(inputs):
    queries, keys, _, weights = inputs
    constant = normal(1, D).expand(N, -1)
    torch.testing.assert_close(linear_mean(queries, keys, constant, weights), constant, rtol=1e-12, atol=1e-12)


def test_a_factor_on_the_weights_of_one_sample_cancels(inputs):
    queries, keys, values, weights = inputs
    scaled = weights * torch.tensor([1.0, 1e-3, 50.0], dtype=torch.float64)
    torch.testing.assert_close(
        linear_mean(queries, keys, values, scaled), linear_mean(queries, keys, values, weights), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("with_bias", [True, False])
def test_a_linear_map_of_the_values_may_be_applied_to_the_sums(inputs, with_bias):
    _, keys, values, weights = inputs
    matrix, bias = normal(4, D, seed=5), normal(4, seed=6) if with_bias else None
    sums, norms = key_sums(keys, values, weights)
    mapped = values @ matrix.T + (bias if with_bias else 0)
    torch.testing.assert_close(mapped_sums(sums, norms, matrix, bias), key_sums(keys, mapped, weights)[0])


def test_nothing_of_size_nodes_times_samples_times_dimension_is_kept_for_the_backward_pass():
    nodes, samples = 500, 40
    inputs = [positive(nodes, F), positive(nodes, F, seed=1), normal(nodes, D), positive(nodes, samples)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t):
        linear_mean(*(tensor.requires_grad_() for tensor in inputs))
    assert max(kept) == nodes * samples


@pytest.fixture
def graph():
    pairs = np.random.default_rng(0).choice(9 * 7, 30, replace=False)
    return BipartiteGraph.from_interactions(
        Interactions.from_indices([*(pairs // 7), 0, 0], [*(pairs % 7), 3, 3], 10, 8)
    )


def test_dots_along_the_edges_are_entries_of_the_full_product_both_ways(graph):
    left, right = normal(18, D).requires_grad_(), normal(18, D, seed=1).requires_grad_()
    users, items = graph.edge_users.long(), graph.edge_items.long()

    def dense(left, right):
        full = left @ right.T
        return torch.stack([full[users, items], full[items, users]])

    agree(lambda left, right: both_way_dots(graph, left, right), dense, [left, right])
    assert torch.autograd.gradcheck(lambda *rows: both_way_dots(graph, *rows), (left, right))


def test_gradients_reach_each_input_alone(inputs):
    for number in range(4):
        alone = [tensor.detach() for tensor in inputs]
        alone[number].requires_grad_()
        linear_mean(*alone).square().sum().backward()
        assert alone[number].grad.abs().sum() > 0
    assert all(tensor.grad is None for tensor in itertools.chain(inputs))
