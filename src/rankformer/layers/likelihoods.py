"""Log-likelihoods of 0/1 rows under their reconstruction, gathered over blocks of columns.

Summed over all places of a batch, x the entry and y its reconstruction, eps = 1e-10:

    poisson       x ln(y + eps) - y
    bernoulli     x ln(y + eps) + (1 - x) ln(1 - y + eps)
    gaussian      -(x - y)^2
    multinomial   x ln(p + eps),   p the softmax of the row's y over all columns

A batch is seen block after block, once for the value and once more for the slope, so that no (b, m) array stands.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_EPSILON = 1e-10


class Block(NamedTuple):
    """The ones of a batch within a block of columns.

    Attributes:
        columns: which columns.
        rows: (k,) row of each one.
        flat: (k,) its place in the block as one run of memory.
    """

    columns: slice
    rows: Tensor
    flat: Tensor


class Likelihood(Protocol):
    """What a decoder needs of a likelihood.

    Attributes:
        bounded: whether each aspect's logits pass through a sigmoid.
    """

    bounded: bool

    def add(self, y: Tensor, block: Block) -> None:
        """Take in the reconstruction (b, B) of a block of columns."""

    def total(self) -> Tensor:
        """Return the sum over all places, once every block was added."""

    def slope(self, y: Tensor, block: Block) -> Tensor:
        """Return the derivative of the total by the reconstruction of a block, (b, B)."""


class Terms(NamedTuple):
    """What a place contributes by its y, and the derivatives of that: where the entry is 0, and where it is 1."""

    zero: Callable[[Tensor], Tensor]
    one: Callable[[Tensor], Tensor]
    zero_slope: Callable[[Tensor], Tensor]
    one_slope: Callable[[Tensor], Tensor]


def _rest(y: Tensor) -> Tensor:
    return (1 - y).clamp_(min=0) + _EPSILON  # rounding may take y above 1


POINTWISE = {
    "poisson": Terms(
        torch.neg,
        lambda y: (y + _EPSILON).log_() - y,
        lambda y: torch.full_like(y, -1),
        lambda y: (y + _EPSILON).reciprocal_() - 1,
    ),
    "bernoulli": Terms(
        lambda y: _rest(y).log_(),
        lambda y: (y + _EPSILON).log_(),
        lambda y: _rest(y).reciprocal_().neg_(),
        lambda y: (y + _EPSILON).reciprocal_(),
    ),
    "gaussian": Terms(
        lambda y: y.square().neg_(),
        lambda y: (1 - y).square_().neg_(),
        lambda y: -2 * y,
        lambda y: 2 * (1 - y),
    ),
}


class Pointwise:
    """A sum over places of a function of each one's entry and reconstruction."""

    bounded = True

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._sums: list[Tensor] = []

    def add(self, y: Tensor, block: Block) -> None:
        """Take in a block."""
        ones = y.view(-1)[block.flat]
        self._sums.append(self.terms.zero(y).sum() + (self.terms.one(ones) - self.terms.zero(ones)).sum())

    def total(self) -> Tensor:
        """Return the sum over all blocks."""
        return torch.stack(self._sums).sum()

    def slope(self, y: Tensor, block: Block) -> Tensor:
        """Return the derivative by y."""
        slope = self.terms.zero_slope(y)
        slope.view(-1)[block.flat] = self.terms.one_slope(y.view(-1)[block.flat])
        return slope


class Multinomial:
    """A softmax over all columns of a row, of which blocks are seen one at a time.

    With g = 1 / (p + eps) on the ones and 0 elsewhere, the derivative by y_j is p_j (g_j - sum_k g_k p_k).
    """

    bounded = False

    def __init__(self) -> None:
        self._norms: list[Tensor] = []
        self._ones: list[tuple[Tensor, Tensor]] = []

    def add(self, y: Tensor, block: Block) -> None:
        """Take in a block."""
        self._norms.append(y.logsumexp(1))
        self._ones.append((block.rows, y.view(-1)[block.flat]))

    def total(self) -> Tensor:
        """Return the sum over the ones."""
        rows, y = (torch.cat(parts) for parts in zip(*self._ones, strict=True))
        self._norm = torch.stack(self._norms).logsumexp(0)  # (b,)
        p = (y - self._norm[rows]).exp()
        self._share = torch.zeros_like(self._norm).index_add_(0, rows, p / (p + _EPSILON))  # (b,) sum_k g_k p_k
        return (p + _EPSILON).log_().sum()

    def slope(self, y: Tensor, block: Block) -> Tensor:
        """Return the derivative by y."""
        p = (y - self._norm[:, None]).exp_()
        ones = p.view(-1)[block.flat]
        slope = p.mul_(-self._share[:, None])
        slope.view(-1)[block.flat] += ones / (ones + _EPSILON)
        return slope


def likelihood_of(name: str) -> Likelihood:
    """Return a likelihood that has seen nothing, for one batch."""
    return Multinomial() if name == "multinomial" else Pointwise(POINTWISE[name])
