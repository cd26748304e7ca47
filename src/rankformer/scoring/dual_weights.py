"""EASE's item weights by a matrix over the training users, never multiplied out.

    B_ji = s_i x_j . K x_i  for j != i,   B_ii = 0,      s_i = 1 / (1 - x_i . K x_i)

x_i (n,) is the column of item i in the training histories X, which every run holds; K = (X X^T + lambda I)^-1 and s are
stored (`rankformer.models.ease` has the derivation). A history x scores x B = s (x X^T K X) - (s - 1) x, elementwise
in s: two sparse products and n^2 multiply-adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.scoring.base import check_tensor
from rankformer.scoring.item_matrix import ItemMatrix


@dataclass(frozen=True, eq=False)
class DualWeights(ItemMatrix):
    """B by K and the training histories."""

    kind: ClassVar[str] = "dual"
    interactions: csr_array  # (n, m) X, the training histories
    inverse: Tensor  # (n, n) float32 K
    scale: Tensor  # (m,) float32 s

    @property
    def num_items(self) -> int:
        return len(self.scale)

    @cached_property
    def _by_item(self) -> csr_array:
        """X^T, (m, n)."""
        return self.interactions.T.tocsr()

    def product(self, histories: csr_array) -> NDArray[np.float32]:
        shared = torch.from_numpy((histories @ self._by_item).toarray())  # (b, n) x X^T
        solved = (self.inverse @ shared.T).numpy()  # (n, b)
        scores: NDArray[np.float32] = np.ascontiguousarray((self._by_item @ solved).T)
        scale = self.scale.numpy()
        scores *= scale
        own = histories.tocoo()
        np.subtract.at(scores, own.coords, (scale - 1)[own.coords[1]] * own.data)
        return scores

    def column(self, item: int) -> NDArray[np.float64]:
        users = self._by_item[[item]].tocoo()
        solved = torch.from_numpy(users.data).double() @ self.inverse[users.coords[1]].double()  # (n,) K x_i
        column: NDArray[np.float64] = self._by_item @ solved.numpy() * float(self.scale[item])
        column[item] = 0
        return column

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], interactions: csr_array) -> Self:
        del metadata
        n, m = interactions.shape
        inverse = check_tensor(tensors["inverse"], "inverse", (n, n))
        return cls(interactions, inverse, check_tensor(tensors["scale"], "scale", (m,)))
