"""Randomness without hidden state: starts, dropout and noise from generators that a few numbers decide.

torch's own layers draw their start, and its dropout its masks, from the global generator. A run that is stopped and
resumed would then draw something else, so everything here takes its generator.
"""

import math

import torch
from torch import Tensor, nn

from rankformer.graph.negatives import random_bits

_FIRST_STREAM = 2**40  # beyond the edge numbers, whose negatives are drawn from the same (seed, step)


def generator_of(seed: int, step: int, stream: int = 0) -> torch.Generator:
    """Return a fresh CPU generator that depends on the three numbers alone.

    Args:
        seed: of the run.
        step: of the training, from 1; 0 for what is drawn once.
        stream: tells apart the users of randomness within one step.
    """
    counters = torch.tensor([2 * stream, 2 * stream + 1]) + _FIRST_STREAM
    high, low = random_bits(seed, step, counters).tolist()
    return torch.Generator().manual_seed((high << 31) | low)


def uniform_linear(inputs: int, outputs: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """Return a linear layer with weights and biases from U(-1/sqrt(inputs), 1/sqrt(inputs)), as torch starts them."""
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


def seeded_dropout(rows: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Return the rows with a share `rate` of entries set to 0 and the rest scaled up; as they are without generator."""
    if rate == 0 or generator is None:
        return rows
    kept = torch.rand(rows.shape, generator=generator).to(rows.device) >= rate
    return rows * (kept.to(rows.dtype) / (1 - rate))
