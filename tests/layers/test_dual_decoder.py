"""DualVAE's likelihoods, its decoder and its backward, against the dense equations and finite differences."""

import math

import pytest
import torch
from tests.logs import random_log
from torch.utils._python_dispatch import TorchDispatchMode

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import dual_decoder
from rankformer.layers.aspects import BinaryRows
from rankformer.layers.dual_decoder import POINTWISE, Block, Opposite, decode, likelihood_of

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = [*POINTWISE, "multinomial"]
A, B, D, Q = 3, 4, 2, 5


@pytest.fixture(params=[1, 2**18], ids=["blocks of 64 columns", "one block"])
def entries(request, monkeypatch):
    monkeypatch.setattr(dual_decoder, "_ENTRIES_AT_ONCE", request.param)


def problem(columns=150, size=60, seed=0):
    """Rows of a batch, their dense form, and random inputs in float64."""
    log = random_log(n=6, m=columns, size=size, seed=seed)
    rows = BinaryRows.of(BipartiteGraph.from_interactions(log).distinct(), torch.arange(B))
    x = torch.zeros(B, columns, dtype=torch.float64)
    x[rows.rows, rows.columns] = 1
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    other = Opposite(draw(A, columns, D), draw(A, columns, Q))
    inputs = [draw(A, B, D), draw(A, B, Q), draw(A, columns).softmax(0)]
    return rows, x, other, [value.requires_grad_() for value in inputs]


def reference(z, decoded, attention, other, x, name):
    logits = z @ other.latents.mT + torch.tanh(decoded @ other.decoded.mT)
    r = (logits if name == "multinomial" else logits.sigmoid()) * attention[:, None]
    y = r.sum(0)
    terms = {
        "poisson": lambda: x * (y + 1e-10).log() - y,
        "bernoulli": lambda: x * (y + 1e-10).log() + (1 - x) * (1 - y + 1e-10).log(),
        "gaussian": lambda: -(x - y).square(),
        "multinomial": lambda: x * (y.softmax(1) + 1e-10).log(),
    }
    return terms[name]().sum() / len(x), r @ other.latents


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (-2.0, 0.7)])
def test_outputs_and_gradients_are_those_of_the_dense_equations(name, weights):
    rows, x, other, inputs = problem()
    likelihood, v = decode(*inputs, other, rows, likelihood_of(name))
    expected, expected_v = reference(*inputs, other, x, name)
    torch.testing.assert_close(likelihood, expected)
    torch.testing.assert_close(v, expected_v)
    direction = torch.randn_like(v)
    ours = torch.autograd.grad(weights[0] * likelihood + weights[1] * (v * direction).sum(), inputs)
    theirs = torch.autograd.grad(weights[0] * expected + weights[1] * (expected_v * direction).sum(), inputs)
    for gradient, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_without_neighbourhoods_gets_the_same_gradients(name):
    rows, x, other, inputs = problem(columns=20, size=30)
    ours = torch.autograd.grad(decode(*inputs, other, rows, likelihood_of(name))[0], inputs)
    theirs = torch.autograd.grad(reference(*inputs, other, x, name)[0], inputs)
    for gradient, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_the_backward_agrees_with_finite_differences(name):
    rows, _, other, inputs = problem(columns=5, size=12)

    def both(z, decoded, attention):
        return decode(z, decoded, attention, other, rows, likelihood_of(name))

    assert torch.autograd.gradcheck(both, inputs)


def test_a_reconstruction_lies_between_0_and_1(monkeypatch):
    rows, _, other, inputs = problem()
    seen = []
    rule = likelihood_of("poisson")
    monkeypatch.setattr(rule, "add", lambda y, block: seen.append(y))
    monkeypatch.setattr(rule, "total", lambda: torch.zeros((), dtype=torch.float64))
    decode(*inputs, other, rows, rule)
    y = torch.cat(seen, dim=1)
    assert y.shape == (B, 150)
    assert bool(((y > 0) & (y < 1)).all())


def test_nothing_of_the_size_of_the_whole_reconstruction_is_made(monkeypatch):
    monkeypatch.setattr(dual_decoder, "_ENTRIES_AT_ONCE", 1)
    rows, _, other, inputs = problem(columns=1000)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            made = result if isinstance(result, tuple) else (result,)
            sizes.extend(value.shape for value in made if isinstance(value, torch.Tensor))
            return result

    with Sizes():
        likelihood, v = decode(*inputs, other, rows, likelihood_of("poisson"))
        (likelihood + v.sum()).backward()
    per_pair = [shape for shape in sizes if len(shape) > 1 and shape[-2:] == (B, 1000)]
    assert not per_pair
    assert (A, B, 64) in sizes


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
