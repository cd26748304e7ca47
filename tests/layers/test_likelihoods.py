"""Likelihoods gathered over blocks of columns, against their formulas on the whole matrix."""

import math

import pytest
import torch

from rankformer.layers.likelihoods import POINTWISE, Block, likelihood_of

NAMES = [*POINTWISE, "multinomial"]
X = torch.tensor([[1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], dtype=torch.float64)


def formula(name, x, y):
    e = 1e-10
    if name == "poisson":
        return (x * (y + e).log() - y).sum()
    if name == "bernoulli":
        return (x * (y + e).log() + (1 - x) * (1 - y + e).log()).sum()
    if name == "gaussian":
        return -(x - y).square().sum()
    return (x * (y.softmax(1) + e).log()).sum()


def blocks_of(x, width):
    for start in range(0, x.shape[1], width):
        rows, columns = x[:, start : start + width].nonzero().T
        stop = min(x.shape[1], start + width)
        yield Block(slice(start, stop), rows, rows * (stop - start) + columns)


@pytest.mark.parametrize("width", [1, 3, 7])
@pytest.mark.parametrize("name", NAMES)
def test_value_and_slope_are_those_of_the_formula_whatever_the_blocks(name, width):
    y = torch.rand(X.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    expected = formula(name, X, y)
    (slope,) = torch.autograd.grad(expected, y)
    rule, blocks = likelihood_of(name), list(blocks_of(X, width))
    parts = [y.detach()[:, block.columns].contiguous() for block in blocks]
    for part, block in zip(parts, blocks, strict=True):
        rule.add(part, block)
    assert rule.total().item() == pytest.approx(expected.item(), abs=1e-12)
    found = torch.cat([rule.slope(part, block) for part, block in zip(parts, blocks, strict=True)], dim=1)
    torch.testing.assert_close(found, slope)
    torch.testing.assert_close(torch.cat(parts, dim=1), y.detach())  # the input is left as it was


def test_poisson_of_a_constant_has_its_closed_form():
    rule, c = likelihood_of("poisson"), 0.3
    for block in blocks_of(X, 7):
        rule.add(torch.full(X.shape, c, dtype=torch.float64), block)
    ones = int(X.sum())
    assert rule.total().item() == pytest.approx(ones * math.log(c) - X.numel() * c, abs=1e-8)


def test_a_reconstruction_rounded_above_one_stays_finite():
    rule = likelihood_of("bernoulli")
    y = torch.full((1, 2), 1.0000001)
    block = Block(slice(0, 2), torch.tensor([0]), torch.tensor([1]))
    rule.add(y, block)
    assert bool(torch.isfinite(rule.total()))
    assert bool(torch.isfinite(rule.slope(y, block)).all())


@pytest.mark.parametrize("name", NAMES)
def test_only_the_multinomial_drops_the_sigmoids(name):
    assert likelihood_of(name).bounded == (name != "multinomial")
