"""Weight decay as a term of the loss: its gradient, and what it leaves out; batch L2 is tested with BPR."""

import pytest
import torch
from torch import nn

from rankformer.losses.l2 import weight_decay


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(4, 2))
        self.inner = nn.Module()
        self.inner.table = nn.Parameter(torch.tensor([2.0, -1.0]))
        self.weight = nn.Parameter(torch.tensor([3.0]))


def test_its_gradient_is_the_decay_and_the_embedding_table_has_none():
    network = Tiny()
    decay = weight_decay(network, 0.1)
    decay.backward()
    assert decay.item() == torch.tensor(0.05 * (4 + 1 + 9)).item()
    torch.testing.assert_close(network.inner.table.grad, torch.tensor([0.2, -0.1]))
    torch.testing.assert_close(network.weight.grad, torch.tensor([0.3]))
    assert network.table.grad is None


def test_no_strength_costs_nothing():
    assert weight_decay(Tiny(), 0.0) == 0.0


def test_with_the_table_all_that_is_trained_decays():
    network = Tiny()
    network.weight.requires_grad_(False)
    decay = weight_decay(network, 0.1, with_table=True)
    decay.backward()
    assert decay.item() == pytest.approx(0.05 * (8 + 4 + 1))
    torch.testing.assert_close(network.table.grad, torch.full((4, 2), 0.1))
    assert network.weight.grad is None
