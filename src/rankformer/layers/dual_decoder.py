"""DualVAE's decoder: log-likelihood and neighbourhood vectors of a batch, with a backward written by hand.

For aspects a = 1..A, latents z_a (b, d) of the batch and B_a (m, d) of the opposite side, w (A, m) its attention, f the
decoders; link is the sigmoid, or nothing for the multinomial likelihood:

    T_a = tanh(f(z_a) f'(B_a)^T)     G_a = z_a B_a^T + T_a     S_a = link(G_a)     R_a = S_a w_a
    Y = sum_a R_a     L = 1/b sum_rows likelihood(x, Y)     v_a = R_a B_a

and with D = dL/dY and V_a the gradient arriving at v_a, dot meaning elementwise products:

    dR_a = D + V_a B_a^T     dG_a = dR_a . w_a . link'(G_a)     dz_a = dG_a B_a     df_a = (dG_a . (1 - T_a^2)) f'(B_a)
    dw_a = column sums of dR_a . S_a

The opposite side is constant. Columns are taken a block at a time, all aspects of a block together: forward and
backward keep nothing of size b x m, the backward computes T and S anew from z and f(z), and the few (A, b, block)
arrays stay in the cache. The likelihood is the sum over all entries x of X and y of Y, eps = 1e-10, of

    poisson       x ln(y + eps) - y
    bernoulli     x ln(y + eps) + (1 - x) ln(1 - y + eps)
    gaussian      -(x - y)^2
    multinomial   x ln(p + eps),   p the softmax of the row's y over all columns
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankformer.layers.aspects import BinaryRows, mix_aspects, tanh_products

_ENTRIES_AT_ONCE = 2**18  # of an (A, b, block) array
_EPSILON = 1e-10


class Block(NamedTuple):
    """The k ones of a batch within a block of columns."""

    columns: slice
    rows: Tensor  # (k,) row of each one
    flat: Tensor  # (k,) its index in the flattened block


class Terms(NamedTuple):
    """What an entry contributes by its y, and the derivatives of that: where x is 0, and where x is 1."""

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


class Likelihood:
    """A likelihood of one batch: a sum over entries of a function of each entry and its reconstruction.

    Blocks are seen once for the value and once more for the slope, so that no (b, m) array is kept.

    Attributes:
        bounded: whether each aspect's logits pass through a sigmoid.
    """

    bounded = True

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._sums: list[Tensor] = []

    def add(self, y: Tensor, block: Block) -> None:
        """Take in the reconstruction (b, B) of a block of columns."""
        ones = y.view(-1)[block.flat]
        self._sums.append(self.terms.zero(y).sum() + (self.terms.one(ones) - self.terms.zero(ones)).sum())

    def total(self) -> Tensor:
        """Return the sum over all entries, once every block was added."""
        return torch.stack(self._sums).sum()

    def slope(self, y: Tensor, block: Block) -> Tensor:
        """Return the derivative of the total by the reconstruction of a block, (b, B)."""
        slope = self.terms.zero_slope(y)
        slope.view(-1)[block.flat] = self.terms.one_slope(y.view(-1)[block.flat])
        return slope


class Multinomial(Likelihood):
    """A softmax over all columns of a row, of which blocks are seen one at a time.

    With g = 1 / (p + eps) on the ones and 0 elsewhere, the derivative by y_j is p_j (g_j - sum_k g_k p_k).
    """

    bounded = False

    def __init__(self) -> None:
        self._norms: list[Tensor] = []
        self._ones: list[tuple[Tensor, Tensor]] = []

    def add(self, y: Tensor, block: Block) -> None:
        self._norms.append(y.logsumexp(1))
        self._ones.append((block.rows, y.view(-1)[block.flat]))

    def total(self) -> Tensor:
        rows, y = (torch.cat(parts) for parts in zip(*self._ones, strict=True))
        self._norm = torch.stack(self._norms).logsumexp(0)  # (b,)
        p = (y - self._norm[rows]).exp()
        self._mean = torch.zeros_like(self._norm).index_add_(0, rows, p / (p + _EPSILON))  # (b,) sum_k g_k p_k
        return (p + _EPSILON).log_().sum()

    def slope(self, y: Tensor, block: Block) -> Tensor:
        p = (y - self._norm[:, None]).exp_()
        ones = p.view(-1)[block.flat]
        slope = p.mul_(-self._mean[:, None])
        slope.view(-1)[block.flat] += ones / (ones + _EPSILON)
        return slope


def likelihood_of(name: str) -> Likelihood:
    """Return a likelihood that has seen nothing, for one batch."""
    return Multinomial() if name == "multinomial" else Likelihood(POINTWISE[name])


class Opposite(NamedTuple):
    """What a batch is decoded against, constant while its side is trained."""

    latents: Tensor  # (A, m, d) B
    decoded: Tensor  # (A, m, q) f'(B)


def _blocks(rows: BinaryRows, columns: int, aspects: int) -> Iterator[Block]:
    """Yield the ones of each block of columns."""
    width = min(columns, max(64, _ENTRIES_AT_ONCE // (aspects * rows.num_rows)))
    sorted_columns, sorted_rows = rows.columns[rows.order], rows.rows[rows.order]
    starts = torch.arange(0, columns + width, width, device=rows.columns.device)
    ends = torch.searchsorted(sorted_columns, starts).tolist()
    for number, start in enumerate(range(0, columns, width)):
        span = slice(ends[number], ends[number + 1])
        stop = min(columns, start + width)
        flat = sorted_rows[span] * (stop - start) + (sorted_columns[span] - start)
        yield Block(slice(start, stop), sorted_rows[span], flat)


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, decoded: Tensor, attention: Tensor, other: Opposite, rows: BinaryRows, rule: Likelihood
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z, decoded, attention)
        ctx.other, ctx.rows, ctx.rule = other, rows, rule
        weighted = other.latents * attention[:, :, None]  # (A, m, d)
        v = torch.zeros_like(z)
        for block in _blocks(rows, weighted.shape[1], len(z)):
            at = block.columns
            s = tanh_products(decoded, other.decoded[:, at]).baddbmm_(z, other.latents[:, at].mT)
            if rule.bounded:
                s.sigmoid_()
            rule.add(mix_aspects(s, attention[:, at]), block)
            v.baddbmm_(s, weighted[:, at])
        return rule.total() / rows.num_rows, v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        z, decoded, attention = ctx.saved_tensors
        other: Opposite = ctx.other
        rule: Likelihood = ctx.rule
        scale = torch.zeros_like(z[0, 0, 0]) if grads[0] is None else grads[0] / ctx.rows.num_rows
        grad_v = grads[1]
        grad_z, grad_decoded = torch.zeros_like(z), torch.zeros_like(decoded)
        grad_attention = torch.zeros_like(attention) if ctx.needs_input_grad[2] else None
        for block in _blocks(ctx.rows, attention.shape[1], len(z)):
            at = block.columns
            latents, other_decoded, w = other.latents[:, at], other.decoded[:, at], attention[:, at]
            t = tanh_products(decoded, other_decoded)
            s = torch.baddbmm(t, z, latents.mT)
            if rule.bounded:
                s.sigmoid_()
            slope = rule.slope(mix_aspects(s, w), block).mul_(scale)  # (b, B)
            grad = slope.expand_as(s) if grad_v is None else torch.baddbmm(slope, grad_v, latents.mT)  # dR
            if grad_attention is not None:
                grad_attention[:, at] = (grad * s).sum(1)
            grad = grad * w[:, None]
            if rule.bounded:
                torch.ops.aten.sigmoid_backward(grad, s, grad_input=grad)
            grad_z.baddbmm_(grad, latents)
            torch.ops.aten.tanh_backward(grad, t, grad_input=grad)
            grad_decoded.baddbmm_(grad, other_decoded)
        return grad_z, grad_decoded, grad_attention, None, None, None


def decode(
    z: Tensor, decoded: Tensor, attention: Tensor, other: Opposite, rows: BinaryRows, rule: Likelihood
) -> tuple[Tensor, Tensor]:
    """Return the log-likelihood, a mean over the rows x, and the neighbourhood vectors v (A, b, d).

    From latents z (A, b, d), `decoded` f(z) (A, b, q), attention w (A, m), and a likelihood that has seen nothing yet.
    """
    return _Decode.apply(z, decoded, attention, other, rows, rule)  # type: ignore[no-any-return, no-untyped-call]
