"""Randomness that a few numbers decide and that leaves the global generator alone."""

import pytest
import torch

from rankformer.layers.seeded import SeededDropout, generator_of, uniform_linear, xavier_linear


@pytest.fixture(autouse=True)
def the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), state)


def draw(*numbers):
    return torch.rand(4, generator=generator_of(*numbers)).tolist()


def test_a_generator_depends_on_its_numbers_and_on_nothing_else():
    assert draw(1, 2, 3) == draw(1, 2, 3)
    drawn = [draw(seed, step, stream) for seed in (0, 1) for step in (0, 1) for stream in (0, 1, 2)]
    assert len({tuple(values) for values in drawn}) == 12


def test_linear_layers_are_initialized_in_their_ranges():
    torches = uniform_linear(25, 400, generator_of(0, 0))
    for values in (torches.weight, torches.bias):
        assert 0.19 < values.abs().max() <= 0.2
        assert values.std().item() == pytest.approx(0.2 / 3**0.5, rel=0.1)
    xavier = xavier_linear(25, 50, generator_of(0, 0), bias=True, gain=0.5)
    assert 0.5 * (6 / 75) ** 0.5 * 0.95 < xavier.weight.abs().max() <= 0.5 * (6 / 75) ** 0.5
    assert xavier.bias.abs().sum() == 0
    assert uniform_linear(2, 3, generator_of(0, 0), bias=False).bias is None
    assert xavier_linear(2, 3, generator_of(0, 0)).bias is None


def test_linear_layers_repeat_with_their_generator():
    for make in (uniform_linear, xavier_linear):
        first, again, other = (make(4, 4, generator_of(seed, 0)).weight for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def dropped_rows(rows, rate, step):
    dropout = SeededDropout(rate)
    dropout.begin(0, step)
    return dropout(rows)


def test_dropout_drops_its_fraction_and_keeps_the_mean():
    rows = torch.ones(200, 100)
    dropped = dropped_rows(rows, 0.3, step=1)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert dropped.max().item() == pytest.approx(1 / 0.7)
    assert torch.equal(dropped, dropped_rows(rows, 0.3, step=1))
    assert not torch.equal(dropped, dropped_rows(rows, 0.3, step=2))


def test_dropout_leaves_rows_alone_without_rate_or_step_and_in_evaluation():
    rows = torch.ones(3, 2)
    assert dropped_rows(rows, 0.0, step=1) is rows
    assert SeededDropout(0.5)(rows) is rows
    dropout = SeededDropout(0.5)
    dropout.begin(0, 1)
    assert dropout.eval()(rows) is rows
