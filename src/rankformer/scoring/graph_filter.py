"""GF-CF's item weights, a sum of two products that is never multiplied out.

    W = R~^T R~ + alpha D_i^-1/2 V V^T D_i^1/2,      R~ = D_u^-1/2 R D_i^-1/2

R~ comes from the training histories, which every run holds; V (m, k) is stored. X W is two sparse and two
thin products.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from rankformer.graph.bipartite import positive_sums
from rankformer.scoring.base import check_tensor, stored_number
from rankformer.scoring.item_matrix import ItemMatrix


@dataclass(frozen=True, eq=False)
class GraphFilter(ItemMatrix):
    """A linear filter plus `weight` times an ideal low-pass filter over the item graph."""

    kind: ClassVar[str] = "graph-filter"
    interactions: csr_array  # (n, m) R, the training histories
    vectors: Tensor  # (m, k) float32 V, orthonormal columns
    weight: float  # alpha

    @property
    def num_items(self) -> int:
        return len(self.vectors)

    @cached_property
    def _root_degree(self) -> NDArray[np.float32]:
        """D_i^1/2, (m,); 1 for an item without interactions."""
        degree: NDArray[np.float32] = np.sqrt(positive_sums(self.interactions, 0)).astype(np.float32)
        return degree

    @cached_property
    def _normalized(self) -> csr_array:
        """R~, (n, m)."""
        users = 1 / np.sqrt(positive_sums(self.interactions, 1)).astype(np.float32)
        return csr_array(diags_array(users) @ self.interactions @ diags_array(1 / self._root_degree))

    @cached_property
    def _transposed(self) -> csr_array:
        """R~^T, (m, n)."""
        return self._normalized.T.tocsr()

    @cached_property
    def _low_pass(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """D_i^-1/2 V, (m, k), and alpha V^T D_i^1/2, (k, m)."""
        v: NDArray[np.float32] = self.vectors.numpy()
        root = self._root_degree[:, None]
        return v / root, np.ascontiguousarray((v * root * np.float32(self.weight)).T)

    def product(self, histories: csr_array) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = (histories @ self._transposed @ self._normalized).toarray()
        inward, outward = self._low_pass
        scores += (histories @ inward) @ outward
        return scores

    def column(self, item: int) -> NDArray[np.float64]:
        linear = (self._transposed @ self._transposed[[item]].T).toarray()[:, 0].astype(np.float64)
        v, root = self.vectors.double().numpy(), self._root_degree.astype(np.float64)
        column: NDArray[np.float64] = linear + self.weight * (v @ v[item]) * root[item] / root
        return column

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], interactions: csr_array) -> Self:
        vectors, weight = tensors["vectors"], stored_number(metadata, "weight", float)
        k = vectors.shape[1] if vectors.ndim == 2 else 0
        return cls(interactions, check_tensor(vectors, "vectors", (interactions.shape[1], k)), weight)
