"""Weight decay of an encoder as a term of the loss."""

import torch
from torch import Tensor, nn


def weight_decay(network: nn.Module, strength: float) -> Tensor | float:
    """Return strength / 2 times the squared length of all parameters but the node table; 0.0 for strength 0.

    Its gradient is what Adam's `weight_decay` adds. The table is left out: its rows have the `l2` of the loss.

    Args:
        network: has its node table as the parameter `table`.
        strength: the decay.
    """
    if strength == 0:
        return 0.0
    squares = [parameter.square().sum() for name, parameter in network.named_parameters() if name != "table"]
    return 0.5 * strength * torch.stack(squares).sum()
