"""Positive random features: vectors phi(x) > 0 whose products estimate the softmax kernel exp(x . y).

    phi(x) = F^-1/2 exp(Omega x - |x|^2 / 2),   E[phi(x) . phi(y)] = exp(x . y)

if each row of Omega (F, d), taken alone, is a standard Gaussian vector (Choromanski et al., "Rethinking Attention with
Performers", ICLR 2021). How the rows of one block of d lie to each other decides the variance only:

    gaussian      independent
    orthogonal    at right angles: rows of a random orthogonal G, with lengths of Gaussian vectors
    simplex       as far apart as d directions can be: rows of S G, pairwise products -1 / (d - 1), with such lengths
                  (Reid et al., "Simplex Random Features", ICML 2023)

More than d features are blocks drawn independently, fewer the first rows of a block.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rankformer.errors import ConfigError

Projection = Literal["gaussian", "orthogonal", "simplex"]
FEATURE_FLOOR = 1e-6


def random_projection(kind: Projection, num_features: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return Omega of a kind (module docstring), (num_features, dim), drawn in float64 and rounded to float32."""
    if kind == "simplex" and dim < 2:
        raise ConfigError(f"projection='simplex' needs vectors of at least 2 entries, not {dim}; use 'orthogonal'")
    if kind == "gaussian":
        return torch.randn(num_features, dim, dtype=torch.float64, generator=generator).float()
    directions = random_orthogonal(math.ceil(num_features / dim), dim, generator)  # (blocks, d, d)
    if kind == "simplex":
        directions = simplex_rows(dim) @ directions
    lengths = torch.randn(directions.shape, dtype=torch.float64, generator=generator).square().sum(2, keepdim=True)
    return (lengths.sqrt() * directions).flatten(0, 1)[:num_features].float()


def random_orthogonal(count: int, dim: int, generator: torch.Generator) -> Tensor:
    """Return uniformly random orthogonal matrices, (count, dim, dim) float64."""
    factors = torch.linalg.qr(torch.randn(count, dim, dim, dtype=torch.float64, generator=generator))
    # The factorisation is unique, and Q uniform, only once R's diagonal is positive.
    signs = factors.R.diagonal(dim1=1, dim2=2).sign()
    rows: Tensor = factors.Q * signs[:, None, :]
    return rows


def simplex_rows(dim: int) -> Tensor:
    """Return S (dim, dim), float64: unit rows in the first dim - 1 axes, each pair with product -1 / (dim - 1).

    s_i = sqrt(d / (d-1)) e_i - (sqrt(d) + 1) / (d-1)^(3/2) (1,..,1,0) for i < d, and s_d = (1,..,1,0) / sqrt(d-1).
    """
    ones = torch.ones(dim, dtype=torch.float64)
    ones[-1] = 0
    rows = math.sqrt(dim / (dim - 1)) * torch.eye(dim, dtype=torch.float64)
    rows -= (math.sqrt(dim) + 1) / (dim - 1) ** 1.5 * ones
    rows[-1] = ones / math.sqrt(dim - 1)
    return rows


def scaled_linear(layer: nn.Linear, rows: Tensor, scale: float) -> Tensor:
    """Return scale (x W^T + b) for every row x: queries or keys, scaled by way of the small W and b."""
    return linear(rows, layer.weight * scale, None if layer.bias is None else layer.bias * scale)


def positive_features(
    rows: Tensor, projection: Tensor, peak: Literal["row", "all"], floor: float = FEATURE_FLOOR
) -> Tensor:
    """Return F^-1/2 (exp(Omega x - |x|^2 / 2 - c) + floor) for every row x, (N, F).

    The shift c keeps exp in range and cancels where features are divided by sums of features, apart from the floor.
    It counts as a constant in the backward pass; no gradient goes to the projection.

    Args:
        rows: (N, d).
        projection: Omega, (F, d).
        peak: c is the largest entry of Omega x in each row (for queries), or in all rows (for keys, whose features
            are summed and must share one c).
        floor: keeps a feature above 0 when exp has none left.
    """
    return _PositiveFeatures.apply(rows, projection, peak, floor)  # type: ignore[no-any-return, no-untyped-call]


class _PositiveFeatures(torch.autograd.Function):
    """Keeps the rows and the features; with h = g (phi - floor), the gradient is h Omega - sum(h) x."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, projection: Tensor, peak: str, floor: float) -> Tensor:
        scale = 1 / math.sqrt(projection.shape[0])
        features = rows @ projection.T  # (N, F)
        shift = features.amax(1, keepdim=True) if peak == "row" else features.max()
        shift = shift + 0.5 * torch.linalg.vector_norm(rows, dim=1, keepdim=True).square()
        features.sub_(shift).exp_().add_(floor).mul_(scale)
        ctx.lowest = floor * scale
        ctx.save_for_backward(rows, projection, features)
        return features

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        rows, projection, features = ctx.saved_tensors
        weighted = (features - ctx.lowest).mul_(grads[0])
        gradient = weighted @ projection
        return gradient.addcmul_(rows, weighted.sum(1, keepdim=True), value=-1), None, None, None
