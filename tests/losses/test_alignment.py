"""Alignment and uniformity against their definitions over all pairs of rows."""

import pytest
import torch
from torch.nn.functional import normalize

from rankformer.losses import alignment as module
from rankformer.losses.alignment import alignment, uniformity


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def uniformity_reference(rows):
    """The definition, over the rows of a batch as they are, duplicates included."""
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    pairs = torch.triu_indices(len(rows), len(rows), offset=1)
    return torch.exp(-2 * distances[pairs[0], pairs[1]]).mean().log()


@pytest.mark.parametrize("block", [1024, 3, 1])
def test_uniformity_of_counted_rows_is_that_of_the_batch_with_duplicates(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    rows, counts = normalize(normal(7, 4)), torch.tensor([1, 3, 1, 2, 1, 5, 1])
    batch = rows.repeat_interleave(counts, dim=0)
    assert uniformity(rows, counts.double()).item() == pytest.approx(uniformity_reference(batch).item(), abs=1e-12)
    unseen = torch.cat([counts, torch.tensor([0])]).double()
    assert uniformity(torch.cat([rows, normalize(normal(1, 4, seed=1))]), unseen).item() == pytest.approx(
        uniformity_reference(batch).item(), abs=1e-12
    )


@pytest.mark.parametrize("block", [1024, 2])
def test_the_gradient_agrees_with_finite_differences_and_with_the_definition(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    z, counts = normal(5, 3).requires_grad_(), torch.tensor([1, 2, 1, 3, 1])
    assert torch.autograd.gradcheck(lambda rows: uniformity(rows, counts.double()), z)
    fast = uniformity(normalize(z), counts.double())
    slow = uniformity_reference(normalize(z)[torch.arange(5).repeat_interleave(counts)] + 0)
    torch.testing.assert_close(*(torch.autograd.grad(value, z)[0] for value in (fast, slow)), rtol=1e-8, atol=1e-9)


def test_uniformity_is_zero_for_equal_rows_and_below_for_others():
    ones = torch.ones(4, dtype=torch.float64)
    equal = normalize(normal(1, 6)).expand(4, -1)
    assert uniformity(equal, ones).item() == pytest.approx(0, abs=1e-12)
    assert uniformity(normalize(normal(4, 6)), ones).item() < -0.1
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert uniformity(opposite, ones[:2]).item() == pytest.approx(-8)


def test_a_single_row_has_no_pair_and_no_gradient():
    row = normalize(normal(1, 3)).requires_grad_()
    value = uniformity(row, torch.ones(1, dtype=torch.float64))
    value.backward()
    assert value.item() == 0
    assert row.grad.abs().sum() == 0


def test_alignment_is_the_mean_squared_distance():
    users, items = normalize(normal(6, 4)), normalize(normal(6, 4, seed=1))
    expected = (users - items).square().sum(1).mean()
    assert alignment((users * items).sum(1)).item() == pytest.approx(expected.item(), abs=1e-12)
    assert alignment((users * users).sum(1)).item() == pytest.approx(0, abs=1e-12)
