"""Item-item weights W, with which a user's history x scores every item: y = x W.

W[j, i] is the weight of item j of a history for item i. A matrix is kept as the method makes it: a few weights per item
(`SparseWeights`), all of them (`DenseWeights`), or as a product that is never multiplied out (`graph_filter`,
`dual_weights`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor

from rankformer.errors import DataError
from rankformer.scoring.base import Part, check_tensor

_BLOCK_PRODUCTS = 2**25  # multiplications of one block of rows, which bound the memory it takes


class ItemMatrix(Part, ABC):
    """The m x m weights of a method, in whatever form it keeps them.

    Attributes:
        kind: name of the form in a run folder.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def num_items(self) -> int:
        """The number m of items."""

    @abstractmethod
    def product(self, histories: csr_array) -> NDArray[np.float32]:
        """Return X W, a fresh (b, m) array, for histories X (b, m)."""

    @abstractmethod
    def column(self, item: int) -> NDArray[np.float64]:
        """Return W[:, item], (m,): the weight of each item for this one."""

    @classmethod
    @abstractmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], interactions: csr_array) -> Self:
        """Return the matrix that was stored, checked, over the training histories (n, m) as the scorer counts them."""


@dataclass(frozen=True, eq=False)
class SparseWeights(ItemMatrix):
    """W by its weights other than 0, grouped by target item."""

    kind: ClassVar[str] = "sparse"
    offsets: Tensor  # (m + 1,) int64; the weights for item i are at offsets[i]:offsets[i + 1]
    sources: Tensor  # (w,) int32 the items j that they come from
    values: Tensor  # (w,) float32

    @classmethod
    def of_lists(cls, sources: Tensor, values: Tensor) -> Self:
        """Return the matrix whose column i holds values[i] at sources[i], both (m, k); a source of -1 is none."""
        kept = sources >= 0
        offsets = torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0))
        return cls(offsets, sources[kept].int(), values[kept].float())

    @classmethod
    def of_rows(cls, by_target: csr_array) -> Self:
        """Return the matrix W^T of the given weights, a row per target item."""
        parts = (by_target.indptr.astype(np.int64), by_target.indices.astype(np.int32), by_target.data)
        offsets, sources, values = (torch.from_numpy(part) for part in parts)
        return cls(offsets, sources, values.float())

    @property
    def num_items(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def _by_target(self) -> csr_array:
        parts = (self.values.numpy(), self.sources.numpy(), self.offsets.numpy())
        return csr_array(parts, shape=(self.num_items, self.num_items))

    @cached_property
    def _by_source(self) -> csr_array:
        return self._by_target.T.tocsr()

    def product(self, histories: csr_array) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = (histories @ self._by_source).toarray()
        return scores

    def column(self, item: int) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = self._by_target[[item]].toarray()[0].astype(np.float64)
        return weights

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], interactions: csr_array) -> Self:
        del metadata
        offsets, sources, values = (tensors[name] for name in ("offsets", "sources", "values"))
        m, size = interactions.shape[1], len(values)
        if offsets.dtype != torch.int64 or offsets.shape != (m + 1,):
            raise DataError(f"item weights need {m + 1} offsets of 64 bits; found {tuple(offsets.shape)}")
        if int(offsets[0]) != 0 or int(offsets[-1]) != size or bool((offsets.diff() < 0).any()):
            raise DataError(f"the offsets of the item weights must rise from 0 to {size}, the number of weights")
        if sources.dtype != torch.int32 or sources.shape != (size,):
            raise DataError(f"item weights need {size} sources of 32 bits; found {tuple(sources.shape)}")
        if size and not (int(sources.min()) >= 0 and int(sources.max()) < m):
            raise DataError(f"the sources of the item weights must lie in 0..{m - 1}")
        return cls(offsets, sources, check_tensor(values, "values", (size,)))


@dataclass(frozen=True, eq=False)
class DenseWeights(ItemMatrix):
    """W with all its m x m weights."""

    kind: ClassVar[str] = "dense"
    weights: Tensor  # (m, m) float32 W

    @property
    def num_items(self) -> int:
        return len(self.weights)

    def product(self, histories: csr_array) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = histories @ self.weights.numpy()
        return scores

    def column(self, item: int) -> NDArray[np.float64]:
        return self.weights[:, item].double().numpy()

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], interactions: csr_array) -> Self:
        del metadata
        m = interactions.shape[1]
        return cls(check_tensor(tensors["weights"], "weights", (m, m)))


def largest_products(
    left: csr_array,
    right: csr_array,
    count: int,
    rescale: Callable[[NDArray[Any], NDArray[Any], NDArray[np.float64]], NDArray[np.float64]],
) -> csr_array:
    """Return the `count` largest positive entries of each row of left @ right (m, m), its diagonal left out.

    Only products that are not 0 are ever made, a block of rows at a time. Of equal entries the lower column is kept.

    Args:
        left: (m, n).
        right: (n, m).
        count: how many entries to keep.
        rescale: maps rows, columns and values of entries to the values that are compared and kept.
    """
    work = np.cumsum(left.astype(bool) @ np.diff(right.indptr).astype(np.float64))
    cuts = np.searchsorted(work, np.arange(_BLOCK_PRODUCTS, work[-1] if len(work) else 0, _BLOCK_PRODUCTS))
    kept = []
    for block in np.split(np.arange(left.shape[0]), cuts):
        together = (left[block] @ right).tocsr()
        together.sort_indices()
        rows = np.repeat(block, np.diff(together.indptr))
        together.data = np.where(rows == together.indices, 0.0, rescale(rows, together.indices, together.data))
        kept.append(_largest_per_row(together, count))
    return csr_array(vstack(kept, format="csr")) if len(kept) > 1 else kept[0]


def _largest_per_row(matrix: csr_array, count: int) -> csr_array:
    chosen = matrix.data > 0
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        if end - start <= count:
            continue
        values = matrix.data[start:end]
        least = np.partition(values, end - start - count)[end - start - count]
        level = np.flatnonzero(values == least)
        chosen[start:end] &= values >= least
        chosen[start + level[count - int((values > least).sum()) :]] = False
    sizes = np.concatenate([[0], np.cumsum(chosen)])[matrix.indptr]
    return csr_array((matrix.data[chosen], matrix.indices[chosen], sizes), shape=matrix.shape)
