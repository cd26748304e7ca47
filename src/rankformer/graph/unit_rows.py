"""Rows scaled to length 1, with a backward pass that zero rows do not upset."""

from typing import Any

import torch
from torch import Tensor

from rankformer.graph.sparse_ops import row_dot


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows (N, d) of length 1; a row of zeros stays zero and gets no gradient."""
    return _UnitRows.apply(rows)  # type: ignore[no-any-return, no-untyped-call]


class _UnitRows(torch.autograd.Function):
    """x = v / |v| row by row, 0 for v = 0; gv = (gx - x (x . gx)) / |v|."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
        unit = rows * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        along = row_dot(unit, grads[0])[:, None]
        return grads[0].addcmul(unit, along, value=-1).mul_(inverse)
