"""Randomness without hidden state: initial weights, dropout and noise from generators that a few numbers decide.

torch's own layers draw their weights, and its dropout its masks, from the global generator. A run that is stopped and
resumed would then draw something else, so everything here has its own generator.
"""

import math

import torch
from torch import Tensor, nn

from rankformer.graph.negatives import random_bits

_FIRST_STREAM = 2**40  # beyond the edge numbers, whose negatives are drawn from the same (seed, step)


def generator_of(seed: int, step: int, stream: int = 0) -> torch.Generator:
    """Return a fresh CPU generator that depends on the three numbers alone.

    Steps count from 1, 0 is for what is drawn once; streams separate the draws within one step.
    """
    counters = torch.tensor([2 * stream, 2 * stream + 1]) + _FIRST_STREAM
    high, low = random_bits(seed, step, counters).tolist()
    return torch.Generator().manual_seed((high << 31) | low)


def uniform_linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """Return a linear layer with weights and biases from U(-1/sqrt(inputs), 1/sqrt(inputs)), as torch has them."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")  # draws nothing itself
    bound = 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def xavier_linear(
    inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = False, gain: float = 1.0
) -> nn.Linear:
    """Return a linear layer with weights from Xavier's uniform range times `gain`, and biases of 0."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, gain, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class SeededDropout(nn.Module):
    """Dropout whose masks are a pure function of (seed, step) and of the mask's position in the forward pass.

    A fraction `rate` of the entries is set to 0 and the rest scaled up; in evaluation mode rows stay as they are.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self._generator: torch.Generator | None = None

    def begin(self, seed: int, step: int) -> None:
        """Start the draws of a step."""
        self._generator = generator_of(seed, step) if self.rate else None

    def forward(self, rows: Tensor) -> Tensor:
        if self._generator is None or not self.training:
            return rows
        kept = torch.rand(rows.shape, generator=self._generator).to(rows.device) >= self.rate
        return rows * (kept.to(rows.dtype) / (1 - self.rate))
