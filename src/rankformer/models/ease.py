"""EASE: the linear model that predicts each item from all others, in closed form.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019.

    minimise   |X - X B|^2 + lambda |B|^2     with diag(B) = 0
    solution   P = (X^T X + lambda I)^-1,     B_ji = -P_ji / P_ii for j != i
    score      y_ui = sum_j x_uj B_ji

x_uj is 1 for an item of the history (`duplicates=count`: how often it occurs). Fitting inverts an m x m matrix in
place, or with fewer users than items an n x n matrix, K, from which P follows (Woodbury):

    K = (X X^T + lambda I)^-1,     P = (I - X^T K X) / lambda,     B_ji = x_j . K x_i / (1 - x_i . K x_i)

With s = min(n, m) that is 4 s^2 bytes (8 with precision=float64), 0.4 GB for 10,000, and about s^3 multiply-adds.
Data that needs more than `memory_limit` gigabytes is refused.

Where K has at most as many numbers as `keep` weights per item, n^2 <= keep m, it is stored in place of B, which is
never made (`rankformer.scoring.dual_weights`): no weight is lost. Departure elsewhere: only the `keep` weights of each
column that are largest in size, of either sign, are stored, so that memory in use is proportional to m; keep=none
stores all m^2 of them.
"""

from collections.abc import Iterator
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
from rankformer.scoring.base import GivenScores
from rankformer.scoring.dual_weights import DualWeights
from rankformer.scoring.item_matrix import DenseWeights, ItemMatrix, SparseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.top_k import top_k
from rankformer.settings import TunedSettings
from rankformer.training.activations import kept_memory

_ROWS_AT_ONCE = 256


class EASESettings(TunedSettings, ItemWeightSettings):
    """Hyperparameters of EASE."""

    regularization: float = Field(default=200.0, gt=0)
    """L2 regularization lambda of the weights."""
    keep: int | None = Field(default=200, ge=1)
    """Weights stored for each item, the largest in size; none stores all of them, as few users do in any case."""
    precision: Literal["float32", "float64"] = "float32"
    """Numbers in which the matrix is inverted; those of 64 bits need twice the memory and time."""
    memory_limit: float = Field(default=8.0, gt=0)
    """Gigabytes that the matrix may take while fitting."""


class EASE(ClosedFormModel):
    """The linear model that predicts each item from all others, in closed form.

    Use it for dense histories with up to some ten thousand users or items, whichever are fewer.
    """

    name = "ease"
    title = "EASE"
    paper = "Steck, Embarrassingly Shallow Autoencoders for Sparse Data, WWW 2019"
    settings: EASESettings
    uses_weights = True
    deterministic = True
    has_vectors = False
    ladder = {"regularization": (20.0, 60.0, 200.0, 600.0, 2000.0)}
    search_space = {"regularization": {"low": 5.0, "high": 5000.0, "log": True}}

    @ClosedFormModel.takes(EASESettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def operations(self, graph: BipartiteGraph) -> float:
        n, m = graph.num_users, graph.num_items
        return float(min(n, m)) ** 3 + float(graph.num_edges) * (0 if m <= n else n if self._stores_dual(n, m) else m)

    @kept_memory()
    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        settings, n, m = self.settings, graph.num_users, graph.num_items
        self._check_memory(graph)
        pairs = graph.interaction_matrix(settings.count_duplicates)
        dual, kind = n < m, np.dtype(settings.precision)
        inverse = _inverse(pairs.T.tocsr() if dual else pairs, settings.regularization, kind)
        matrix: ItemMatrix
        if self._stores_dual(n, m):
            matrix = DualWeights(pairs, torch.from_numpy(inverse).float(), _dual_scale(pairs, inverse))
        else:
            blocks = _dual_columns(pairs, inverse, settings.regularization) if dual else _primal_columns(inverse)
            matrix = _weights(blocks, m, settings.keep)
        return ItemScorer(matrix, pairs, settings.count_duplicates)

    def _stores_dual(self, n: int, m: int) -> bool:
        """Whether K is stored in place of B: it has no more numbers than B may have."""
        return n < m and n**2 <= min(self.settings.keep or m, m) * m

    def _check_memory(self, graph: BipartiteGraph) -> None:
        m, size = graph.num_items, min(graph.num_users, graph.num_items)
        stored = 4 * m**2 if self.settings.keep is None and size == m else 0
        needed = (np.dtype(self.settings.precision).itemsize * size**2 + stored) / 1e9
        if needed > self.settings.memory_limit:
            raise ConfigError(
                f"ease inverts a matrix of {size} x {size} numbers, which takes {needed:.1f} GB, and "
                f"memory_limit={self.settings.memory_limit:g}; raise that if there is as much, or drop rare items"
            )


def _blocks(rows: csr_array) -> Iterator[csr_array]:
    """Yield the rows of a matrix in blocks."""
    for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
        yield rows[start : start + _ROWS_AT_ONCE]


def _dual_scale(pairs: csr_array, inverse: NDArray[np.floating]) -> Tensor:
    """Return 1 / (1 - x_i . K x_i), (m,)."""
    by_item = pairs.T.tocsr().astype(inverse.dtype)
    own = [some.multiply(some @ inverse).sum(1) for some in _blocks(by_item)]
    return torch.from_numpy(1 / (1 - np.concatenate(own))).float()


def _dual_columns(pairs: csr_array, inverse: NDArray[np.floating], regularization: float) -> Iterator[Tensor]:
    """Yield P in blocks of columns, as rows (b, m) since it is symmetric."""
    by_item, start = pairs.T.tocsr().astype(inverse.dtype), 0  # (m, n)
    for some in _blocks(by_item):
        solved = np.ascontiguousarray((some @ inverse).T)  # (n, b) K x_i
        block = torch.from_numpy(by_item @ solved).T.contiguous().div_(-regularization)  # (b, m)
        block.diagonal(start).add_(1 / regularization)
        start += len(block)
        yield block


def _primal_columns(inverse: NDArray[np.floating]) -> Iterator[Tensor]:
    """Yield P in blocks of columns, as rows (b, m) since it is symmetric."""
    for start in range(0, len(inverse), _ROWS_AT_ONCE):
        yield torch.from_numpy(inverse[start : start + _ROWS_AT_ONCE])


def _inverse(pairs: csr_array, regularization: float, kind: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Return (X^T X + lambda I)^-1, (m, m), both triangles filled; no second m x m array is made."""
    m = pairs.shape[1]
    by_item = pairs.T.tocsr()
    gram = np.empty((m, m), dtype=kind, order="F")
    for start in range(0, m, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        gram[:, rows] = (by_item[rows] @ pairs).toarray().T
    gram[np.diag_indices(m)] += regularization
    factor, invert = get_lapack_funcs(("potrf", "potri"), (gram,))
    lower, failed = factor(gram, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise ConfigError(
            f"regularization={regularization}: the matrix is singular in this precision; use a larger regularization, "
            "or precision=float64"
        )
    lower, _ = invert(lower, lower=1, overwrite_c=1)  # fails only where the factorisation did
    for start in range(0, m, _ROWS_AT_ONCE):  # the upper triangle from the lower
        rows = slice(start, start + _ROWS_AT_ONCE)
        square = np.tril(lower[rows, rows])
        lower[rows, rows] = square + np.tril(square, -1).T
        lower[rows, start + _ROWS_AT_ONCE :] = lower[start + _ROWS_AT_ONCE :, rows].T
    result: NDArray[np.floating] = lower.T  # itself, with contiguous rows
    return result


def _weights(blocks: Iterator[Tensor], num_items: int, keep: int | None) -> ItemMatrix:
    """Return B, or its largest weights in each column, from the columns of P, which are overwritten."""
    sources, values, dense, first = [], [], [], 0
    for block in blocks:
        weights = block.div_(-block.diagonal(first).clone()[:, None]).float()  # (b, m) columns of B, as rows
        weights.diagonal(first).zero_()
        first += len(block)
        if keep is None or keep >= num_items:
            dense.append(weights)
            continue
        sizes = weights.abs()
        sizes.masked_fill_(sizes == 0, float("-inf"))  # weights of 0, the diagonal's among them, are never kept
        largest = top_k(GivenScores(sizes), torch.arange(len(weights)), keep)
        sources.append(largest.items)
        values.append(weights.gather(1, largest.items.clamp(min=0)))
    if dense:
        return DenseWeights(torch.cat(dense).T.contiguous())
    return SparseWeights.of_lists(torch.cat(sources), torch.cat(values))
