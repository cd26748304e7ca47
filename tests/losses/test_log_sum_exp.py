"""The blocked log-sum-exp: against torch's own in value and gradients, for every block size and for huge scores."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from rankformer.losses.log_sum_exp import weighted_log_sum_exp


def rows_of(size, dim=5, scale=1.0, seed=0, dtype=torch.float64):
    return (torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype).requires_grad_()


def reference(queries, keys, weights):
    return (weights * torch.logsumexp(queries @ keys.T, dim=1)).sum()


def value_and_gradients(function, queries, keys, *rest):
    queries, keys = (rows.detach().clone().requires_grad_() for rows in (queries, keys))
    value = function(queries, keys, *rest)
    (3 * value).backward()
    return value.detach(), queries.grad, keys.grad


@pytest.mark.parametrize("block", [1, 30, 10_000])
@pytest.mark.parametrize("scale", [0.3, 50.0], ids=["no shift", "shift"])
@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (7, 11), (12, 3)])
def test_it_is_the_weighted_sum_of_log_sum_exps(block, scale, num_queries, num_keys):
    queries, keys = rows_of(num_queries, scale=scale), rows_of(num_keys, scale=scale, seed=1)
    weights = torch.linspace(-0.5, 2.0, num_queries, dtype=torch.float64)
    got = value_and_gradients(weighted_log_sum_exp, queries, keys, weights, block)
    for mine, expected in zip(got, value_and_gradients(reference, queries, keys, weights), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-10)


def test_rows_that_are_queries_and_keys_get_both_gradients():
    rows, weights = rows_of(9), torch.full((4,), 0.25, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: weighted_log_sum_exp(x[:4], x, weights), rows)


@pytest.mark.parametrize("scale", [1.0, 4.0, 50.0])
def test_float32_stays_near_float64(scale):
    queries, keys = rows_of(20, 16, scale), rows_of(300, 16, scale, seed=1)
    weights = torch.full((20,), 1 / 20, dtype=torch.float64)
    exact = value_and_gradients(weighted_log_sum_exp, queries, keys, weights)
    got = value_and_gradients(weighted_log_sum_exp, queries.float(), keys.float(), weights.float())
    for mine, expected in zip(got, exact, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine.double(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_the_scores_are_never_held_all_at_once():
    queries, keys = rows_of(512, dtype=torch.float32), rows_of(256, seed=1, dtype=torch.float32)
    weights = torch.ones(512)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        weighted_log_sum_exp(queries, keys, weights, 16 * 256).backward()
    sizes = [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert 0 < max(sizes) <= 16 * 256 * 4


def test_without_a_query_the_sum_is_zero_and_so_are_its_gradients():
    queries, keys = (torch.ones(size, 3, requires_grad=True) for size in (0, 4))
    total = weighted_log_sum_exp(queries, keys, torch.ones(0))
    total.backward()
    assert total.item() == 0
    assert torch.equal(keys.grad, torch.zeros(4, 3))
