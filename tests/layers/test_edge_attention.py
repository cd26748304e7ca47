"""Attention along entries: against dense masked attention, in outputs, gradients and allocations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from rankformer.graph.entries import Entries
from rankformer.layers.edge_attention import EdgeAttention, attention_weights, edge_attention


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_entries(size, count, seed=0):
    rows, columns = torch.randint(0, size, (2, count), generator=seeded(seed))
    return Entries.merged(rows, columns, size)[0]


def random_heads(size, heads=2, dim=3, scale=1.0, seed=0):
    return [scale * rows for rows in torch.randn(3, heads, size, dim, dtype=torch.float64, generator=seeded(seed))]


def dense_weights(entries, queries, keys):
    """Masked softmax as the equation has it, (H, N, N)."""
    mask = torch.zeros(entries.num_nodes, entries.num_nodes, dtype=queries.dtype)
    mask[entries.rows.long(), entries.columns.long()] = 1
    raised = (queries @ keys.transpose(1, 2)).clamp(-10, 10).exp() * mask
    return raised / (raised.sum(2, keepdim=True) + 1e-8)


def dense_attention(entries, queries, keys, values):
    return (dense_weights(entries, queries, keys) @ values).transpose(0, 1).flatten(1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 40), st.sampled_from([1, 2, 4]), st.floats(0.1, 4), st.integers(0, 50))
def test_it_is_dense_masked_attention_in_outputs_and_gradients(size, count, heads, scale, seed):
    entries = random_entries(size, count, seed)
    inputs = random_heads(size, heads, scale=scale, seed=seed)
    out_weights = torch.randn(size, heads * 3, dtype=torch.float64, generator=seeded(seed + 1))
    results = []
    for method in (edge_attention, dense_attention):
        leaves = [rows.clone().requires_grad_() for rows in inputs]
        out = method(entries, *leaves)
        (out * out_weights).sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


def test_clipped_scores_pass_no_gradient():
    entries = random_entries(5, 20)
    queries, keys, values = (rows.requires_grad_() for rows in random_heads(5, scale=100.0))
    dense = (queries @ keys.transpose(1, 2)).abs()
    assert dense.min() > 10, "every score of this example is beyond the clip"
    edge_attention(entries, queries, keys, values).square().sum().backward()
    assert queries.grad.abs().max() == keys.grad.abs().max() == 0
    assert values.grad.abs().max() > 0


def test_weights_are_positive_and_sum_to_one_over_each_row_with_an_entry():
    entries = random_entries(9, 30)
    weights = attention_weights(entries, *random_heads(9)[:2])
    assert weights.min() > 0
    sums = torch.stack([torch.bincount(entries.rows, head, minlength=9) for head in weights])
    has_entry = entries.ptr.diff() > 0
    assert not has_entry.all(), "the example has an empty row"
    torch.testing.assert_close(sums, has_entry.double().expand_as(sums), rtol=0, atol=1e-6)


def test_a_row_of_one_entry_gives_it_all_weight_in_every_head():
    entries, _ = Entries.merged(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), 2)
    weights = attention_weights(entries, *random_heads(2, heads=4)[:2])
    total = weights.sum(0)
    assert total[0].item() == pytest.approx(4, abs=1e-3)
    assert 0 < total[1] < 4
    assert total[1:].sum().item() == pytest.approx(4, abs=1e-3)


def test_projecting_nodes_once_is_projecting_every_entry():
    entries, dim, heads = random_entries(7, 25), 8, 4
    layer = EdgeAttention(dim, heads, seeded()).double()
    rows = torch.randn(7, dim, dtype=torch.float64, generator=seeded())
    at_row, at_column = rows[entries.rows.long()], rows[entries.columns.long()]
    query, key, value = (
        part(side).view(len(entries), heads, dim // heads)
        for part, side in ((layer.query, at_row), (layer.key, at_column), (layer.value, at_column))
    )
    raised = (query * key).sum(2).clamp(-10, 10).exp()
    sums = torch.zeros(7, heads, dtype=torch.float64).index_add_(0, entries.rows, raised) + 1e-8
    parts = (raised / sums[entries.rows.long()])[:, :, None] * value
    expected = torch.zeros(7, dim, dtype=torch.float64).index_add_(0, entries.rows, parts.flatten(1))
    torch.testing.assert_close(layer(entries, rows), expected)


def test_the_layer_is_initialized_in_xaviers_range_from_its_generator():
    dim = 16
    one, same = (EdgeAttention(dim, 4, seeded(3)) for _ in range(2))
    assert len(list(one.parameters())) == 3
    for parameter, again in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(parameter, again)
        assert 0.9 * (3 / dim) ** 0.5 < parameter.abs().max() <= (3 / dim) ** 0.5
    assert not torch.equal(one.query.weight, one.key.weight)


def test_nothing_as_large_as_a_row_per_entry_is_made():
    size, dim, heads = 50, 64, 4
    entries = random_entries(size, 2000)
    rows = torch.randn(size, dim, generator=seeded(), requires_grad=True)
    layer = EdgeAttention(dim, heads, seeded())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        layer(entries, rows).sum().backward()
    sizes = [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert 0 < max(sizes) < 4 * len(entries) * dim / 4
