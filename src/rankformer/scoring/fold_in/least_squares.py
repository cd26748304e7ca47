"""Fold-in of weighted least squares: the embedding that fits a history best, the items being fixed.

    A_u v_u = c sum_{e in u} q_i,      A_u = Q^T Q + lambda I + (c - 1) sum_{e in u} q_i q_i^T

(`rankformer.graph.least_squares` has the objective.) With A_u held, v_u is the sum of c A_u^-1 q_i over the history.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from rankformer.errors import DataError
from rankformer.scoring.fold_in.base import Split
from rankformer.scoring.histories import Histories

_ROWS_AT_ONCE = 1 << 14
_NUMBERS_AT_ONCE = 1 << 21  # bounds the systems and right sides that are held together


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Each user solves a d x d system of its own.

    Attributes:
        vectors: (m, d) Q, the items' embeddings.
        weight: c, of an interaction of the history, where every other pair weighs 1.
        regularization: lambda.
    """

    rule: ClassVar[str] = "least-squares"
    explains: ClassVar[bool] = True
    own_embedding: ClassVar[bool] = False
    vectors: Tensor
    weight: float
    regularization: float

    def __post_init__(self) -> None:
        fits = 1 <= self.weight < math.inf and 0 < self.regularization < math.inf
        if not fits:
            found = f"weight={self.weight} and regularization={self.regularization}"
            raise DataError(f"least squares with {found}: expected a weight from 1 and a regularization above 0")

    @cached_property
    def _gram(self) -> Tensor:
        """Q^T Q + lambda I, (d, d)."""
        gram = torch.zeros(self.vectors.shape[1], self.vectors.shape[1], dtype=torch.float64)
        for start in range(0, len(self.vectors), _ROWS_AT_ONCE):
            rows = self.vectors[start : start + _ROWS_AT_ONCE].double()
            gram.addmm_(rows.T, rows)
        gram.diagonal().add_(self.regularization)
        return gram

    def split(self, histories: Histories) -> Split:
        """Return c A_u^-1 q_i for each entry, and no rest."""
        sizes = torch.bincount(histories.users, minlength=histories.num_users)
        starts = sizes.cumsum(0) - sizes
        d = self.vectors.shape[1]
        parts = torch.zeros(len(histories.items), d, dtype=torch.float64)
        for users in _similar_sizes(sizes, d):
            place = torch.arange(int(sizes[users[0]]))  # (l,) the longest history comes first
            filled = place < sizes[users, None]  # (b, l)
            entries = torch.where(filled, starts[users, None] + place, 0)
            q = self.vectors[histories.items[entries]].double() * filled[:, :, None]  # (b, l, d), padded by zeros
            systems = self._gram + (self.weight - 1) * (q.mT @ q)  # (b, d, d)
            solved = torch.cholesky_solve(q.mT, torch.linalg.cholesky(systems)).mT  # (b, l, d)
            parts[entries[filled]] = self.weight * solved[filled]
        return Split(parts, parts.new_zeros(histories.num_users, d))

    def tensors(self) -> dict[str, Tensor]:
        """Return the item embeddings."""
        return {"vectors": self.vectors}

    def metadata(self) -> dict[str, Any]:
        """Return the weight and the regularization."""
        return {"weight": self.weight, "regularization": self.regularization}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        return cls(tensors["vectors"], float(metadata["weight"]), float(metadata["regularization"]))


def _similar_sizes(sizes: Tensor, width: int) -> Iterator[Tensor]:
    """Yield the users that have entries, longest history first, in batches of bounded memory when padded."""
    order = torch.argsort(sizes, descending=True, stable=True)
    order = order[: int((sizes > 0).sum())]
    start = 0
    while start < len(order):
        longest = int(sizes[order[start]])
        count = max(1, _NUMBERS_AT_ONCE // (width * (2 * width + 3 * longest)))
        yield order[start : start + count]
        start += count
