"""Weight decay as a term: its gradient, and whom it spares."""

import torch
from torch import nn

from rankformer.losses.weight_decay import weight_decay


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(4, 2))
        self.inner = nn.Module()
        self.inner.table = nn.Parameter(torch.tensor([2.0, -1.0]))
        self.weight = nn.Parameter(torch.tensor([3.0]))


def test_its_gradient_is_the_decay_and_the_node_table_has_none():
    network = Tiny()
    penalty = weight_decay(network, 0.1)
    penalty.backward()
    assert penalty.item() == torch.tensor(0.05 * (4 + 1 + 9)).item()
    torch.testing.assert_close(network.inner.table.grad, torch.tensor([0.2, -0.1]))
    torch.testing.assert_close(network.weight.grad, torch.tensor([0.3]))
    assert network.table.grad is None


def test_no_strength_costs_nothing():
    assert weight_decay(Tiny(), 0.0) == 0.0
