"""The arithmetic that DualVAE's training and its answers share, against loops."""

import pytest
import torch

from rankformer.layers.aspects import ACTIVATIONS, mix_aspects, tanh_products, weighted_bags


def test_bags_are_weighted_sums_of_rows_for_each_aspect():
    table, weights = torch.randn(4, 3, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    columns, ptr = torch.tensor([1, 3, 0]), torch.tensor([0, 2, 2, 3])
    bags = weighted_bags(columns, ptr, table, weights)
    for aspect in range(2):
        first = weights[aspect, 1] * table[1] + weights[aspect, 3] * table[3]
        expected = torch.stack([first, torch.zeros(3), weights[aspect, 0] * table[0]])
        torch.testing.assert_close(bags[aspect], expected)


def test_products_pass_through_tanh_and_aspects_are_mixed():
    left, right, weights = torch.randn(3, 2, 4), torch.randn(3, 5, 4), torch.rand(3, 5)
    values = tanh_products(left, right)
    assert values[2, 1, 4].item() == pytest.approx(torch.tanh(left[2, 1] @ right[2, 4]).item(), abs=1e-6)
    torch.testing.assert_close(mix_aspects(values, weights), torch.einsum("abm,am->bm", values, weights))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_leave_their_input_alone(name):
    values = torch.tensor([-1.0, 0.5])
    activated = ACTIVATIONS[name](values)
    assert activated[0] < activated[1]
    assert values.tolist() == [-1.0, 0.5]
