"""EASE: the linear model that predicts each item from all others, in closed form.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.

    minimise   |X - X B|^2 + lambda |B|^2     with diag(B) = 0
    solution   P = (X^T X + lambda I)^-1,     B_ji = -P_ji / P_ii for j != i
    score      y_ui = sum_j x_uj B_ji

x_uj is 1 for an item of the history (`duplicates=count`: how often it occurs). Fitting inverts an m x m matrix in
place: 4 m^2 bytes (8 with precision=float64) and about m^3 multiply-adds, 0.4 GB for 10,000 items and 5.8 GB for
38,000. Data that needs more than `memory_limit` gigabytes is refused.

Departure: only the `keep` weights of each column that are largest in size, of either sign, are stored, so that memory
in use is proportional to m; keep=none stores all m^2 of them.
"""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import get_lapack_funcs
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.base import ScoreMatrix
from rankformer.scoring.item_matrix import DenseWeights, ItemMatrix, SparseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.top_k import top_k

_ROWS_AT_ONCE = 512


class EASESettings(ItemWeightSettings):
    """Hyperparameters of EASE."""

    regularization: float = Field(default=200.0, gt=0)
    """L2 regularization lambda of the weights."""
    keep: int | None = Field(default=200, ge=1)
    """Weights stored for each item, the largest in size; none stores all of them."""
    precision: Literal["float32", "float64"] = "float32"
    """Numbers in which the matrix is inverted; those of 64 bits need twice the memory and time."""
    memory_limit: float = Field(default=8.0, gt=0)
    """Gigabytes that the m x m matrix may take while fitting."""


class EASE(ClosedFormModel):
    """The linear model that predicts each item from all others, in closed form.

    Use it for catalogues up to some ten thousand items with dense histories; it needs m^2 memory.
    """

    name = "ease"
    title = "EASE"
    paper = "Steck, Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019"
    settings: EASESettings
    deterministic = True
    has_vectors = False
    search_space = {"regularization": {"low": 5.0, "high": 5000.0, "log": True}}

    @ClosedFormModel.takes(EASESettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        self._check_memory(graph.num_items)
        count_duplicates = self.settings.count_duplicates
        interactions = graph.interaction_matrix(count_duplicates)
        inverse = _inverse(interactions, self.settings.regularization, np.dtype(self.settings.precision))
        return ItemScorer(_weights(inverse, self.settings.keep), interactions, count_duplicates)

    def _check_memory(self, num_items: int) -> None:
        kept_too = 4 if self.settings.keep is None else 0
        needed = (np.dtype(self.settings.precision).itemsize + kept_too) * num_items**2 / 1e9
        if needed > self.settings.memory_limit:
            raise ConfigError(
                f"ease inverts a matrix of {num_items} x {num_items} numbers, which takes {needed:.1f} GB, and "
                f"memory_limit={self.settings.memory_limit:g}; raise it if there is enough memory, or drop rare items"
            )


def _inverse(x: csr_array, regularization: float, kind: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Return P = (X^T X + lambda I)^-1, (m, m), both triangles filled; no second m x m array is made."""
    m = x.shape[1]
    by_item = x.T.tocsr()
    gram = np.empty((m, m), dtype=kind, order="F")
    for start in range(0, m, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        gram[:, rows] = (by_item[rows] @ x).toarray().T
    gram[np.diag_indices(m)] += regularization
    factor, invert = get_lapack_funcs(("potrf", "potri"), (gram,))
    lower, failed = factor(gram, lower=1, overwrite_a=1, clean=0)
    if not failed:
        lower, failed = invert(lower, lower=1, overwrite_c=1)
    if failed:
        raise ConfigError(
            f"regularization={regularization}: the matrix is singular in this precision; use a larger regularization, "
            "or precision=float64"
        )
    for start in range(0, m, _ROWS_AT_ONCE):  # the upper triangle from the lower
        rows = slice(start, start + _ROWS_AT_ONCE)
        square = np.tril(lower[rows, rows])
        lower[rows, rows] = square + np.tril(square, -1).T
        lower[rows, start + _ROWS_AT_ONCE :] = lower[start + _ROWS_AT_ONCE :, rows].T
    result: NDArray[np.floating] = lower
    return result


def _weights(inverse: NDArray[np.floating], keep: int | None) -> ItemMatrix:
    """Return B, or its largest weights in each column; the inverse is overwritten."""
    m = len(inverse)
    diagonal = inverse.diagonal().copy()
    inverse[np.diag_indices(m)] = 0
    if keep is None or keep >= m:
        inverse /= -diagonal
        return DenseWeights(torch.from_numpy(np.ascontiguousarray(inverse, dtype=np.float32)))
    largest = top_k(_Sizes(inverse), torch.arange(m), keep)
    sources = largest.items.numpy()
    values = -inverse[sources.clip(min=0), np.arange(m)[:, None]] / diagonal[:, None]
    return SparseWeights.of_lists(largest.items, torch.from_numpy(values))


class _Sizes(ScoreMatrix):
    """Scores the weights of a column by their size; P_ii divides them all, so it need not."""

    def __init__(self, inverse: NDArray[np.floating]) -> None:
        self.columns = torch.from_numpy(inverse.T)  # symmetric: a column as a row that lies in one piece

    @property
    def num_items(self) -> int:
        return len(self.columns)

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        """Return |P_ji| for targets i (rows) and all j; -inf for weights of 0, the diagonal's among them."""
        del out
        sizes = self.columns[users].abs()
        return sizes.masked_fill_(sizes == 0, float("-inf"))
