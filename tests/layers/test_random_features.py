"""Projections whose rows are as they should be, and features whose products estimate the softmax kernel."""

import math

import pytest
import torch

from rankformer.errors import ConfigError
from rankformer.layers.random_features import positive_features, random_orthogonal, random_projection, simplex_rows
from rankformer.layers.seeded import generator_of


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("dim", [2, 3, 8, 33])
def test_simplex_rows_are_unit_vectors_as_far_apart_as_can_be(dim):
    rows = simplex_rows(dim)
    expected = torch.full((dim, dim), -1 / (dim - 1), dtype=torch.float64).fill_diagonal_(1)
    torch.testing.assert_close(rows @ rows.T, expected, rtol=0, atol=1e-12)


def test_random_orthogonal_is_orthogonal_and_has_no_preferred_sign():
    draws = random_orthogonal(400, 3, generator_of(0, 0))
    identities = torch.eye(3, dtype=torch.float64).expand(400, 3, 3)
    torch.testing.assert_close(draws @ draws.mT, identities, rtol=0, atol=1e-12)
    assert draws.mean(0).abs().max() < 0.12  # four standard errors of 1/sqrt(3 * 400)


@pytest.mark.parametrize(("kind", "product"), [("orthogonal", 0.0), ("simplex", -1 / 7)])
def test_rows_of_a_block_have_the_angles_of_their_kind(kind, product):
    projection = random_projection(kind, 20, 8, generator_of(1, 0)).double()
    expected = torch.full((8, 8), product, dtype=torch.float64).fill_diagonal_(1)
    for block in (projection[:8], projection[8:16]):
        torch.testing.assert_close(unit(block) @ unit(block).T, expected, rtol=0, atol=1e-6)
    assert projection.shape == (20, 8)
    across = unit(projection[:8]) @ unit(projection[8:16]).T
    assert (across - product).abs().max() > 0.1, "blocks are drawn independently"


@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "simplex"])
def test_row_lengths_are_those_of_gaussian_vectors(kind):
    squares = random_projection(kind, 4096, 16, generator_of(2, 0)).square().sum(1)
    assert squares.mean().item() == pytest.approx(16, abs=4 * math.sqrt(32 / 4096))
    assert squares.var().item() == pytest.approx(32, rel=0.15)


def test_a_projection_depends_on_its_generator_alone():
    torch.manual_seed(5)
    first, again, other = (random_projection("simplex", 5, 4, generator_of(seed, 3)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_simplex_needs_two_dimensions():
    with pytest.raises(ConfigError, match="at least 2 entries, not 1; use 'orthogonal'"):
        random_projection("simplex", 3, 1, generator_of(0, 0))


@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "simplex"])
def test_products_of_features_are_the_kernel_on_average(kind):
    x, y = unit(normal(2, 8))[0] * 0.9, unit(normal(2, 8, seed=3))[1]
    estimates = estimates_of(kind, x, y, draws=3000)
    error = estimates.std() / math.sqrt(len(estimates))
    assert abs(estimates.mean() - torch.exp(x @ y)) < 3 * error


def estimates_of(kind, x, y, draws):
    """One estimate of exp(x . y) from each of many blocks."""
    projections = random_projection(kind, 8 * draws, 8, generator_of(4, 0)).double().view(draws, 8, 8)
    features = [torch.exp(projections @ v - v @ v / 2) / math.sqrt(8) for v in (x, y)]
    return (features[0] * features[1]).sum(1)


def test_simplex_features_vary_less_than_orthogonal_ones_and_those_less_than_independent_ones():
    x, y = unit(normal(2, 8, seed=1)) * 0.5
    gaussian, orthogonal, simplex = (
        estimates_of(kind, x, y, draws=20000).var().item() for kind in ("gaussian", "orthogonal", "simplex")
    )
    assert simplex < 0.5 * orthogonal
    assert orthogonal < gaussian


def test_many_features_match_the_kernel_within_three_per_cent():
    rows = unit(normal(6, 12)) * 0.5
    projection = normal(20000, 12, seed=9)
    shifted = [positive_features(rows, projection, peak, floor=0.0) for peak in ("row", "all")]
    shift = [(rows @ projection.T).amax(1, keepdim=True), (rows @ projection.T).max()]
    queries, keys = (features * torch.exp(c) for features, c in zip(shifted, shift, strict=True))
    torch.testing.assert_close(queries @ keys.T, torch.exp(rows @ rows.T), rtol=0.03, atol=0)


@pytest.mark.parametrize("peak", ["row", "all"])
def test_features_are_positive_and_bounded_however_long_the_rows(peak):
    for scale in (0.0, 1.0, 1e3):
        features = positive_features(normal(7, 4).float() * scale, normal(5, 4, seed=1).float(), peak)
        assert (features > 0).all()
        assert (features <= (1 + 2e-6) / math.sqrt(5)).all()


@pytest.mark.parametrize("peak", ["row", "all"])
@pytest.mark.parametrize("floor", [0.0, 1e-2])
def test_the_gradient_is_that_of_the_formula_with_a_constant_shift(peak, floor):
    rows, projection, grad = normal(6, 4).requires_grad_(), normal(5, 4, seed=1), normal(6, 5, seed=2)
    logits = rows @ projection.T
    shift = (logits.amax(1, keepdim=True) if peak == "row" else logits.max()).detach()
    formula = (torch.exp(logits - rows.square().sum(1, keepdim=True) / 2 - shift) + floor) / math.sqrt(5)
    features = positive_features(rows, projection, peak, floor)
    torch.testing.assert_close(features, formula, rtol=1e-12, atol=1e-15)
    expected, got = (torch.autograd.grad(value, rows, grad)[0] for value in (formula, features))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_a_projection_gets_no_gradient():
    projection = normal(5, 4).requires_grad_()
    positive_features(normal(6, 4, seed=1).requires_grad_(), projection, "row").sum().backward()
    assert projection.grad is None
