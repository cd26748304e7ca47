"""SLIM: sparse, non-negative weights that predict each item from the others.

Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", ICDM 2011.

    minimise   1/2 |X - X W|^2 + l2/2 |W|^2 + l1 |W|_1     with W >= 0 and diag(W) = 0
    score      y_ui = sum_j x_uj W_ji

x_uj is 1 for an item of the history (`duplicates=count`: how often it occurs). Each column is a problem of its own, in
which only the Gram matrix G = X^T X occurs. Since G and W are not negative, W_ji > 0 needs G_ji > l1: the items that
have more than l1 users in common with i are all that coordinate descent has to visit,

    W_ji <- max(0, G_ji - sum_{k != j} G_jk W_ki - l1) / (G_jj + l2).

Columns with as many such items are solved together, batches in parallel threads. G is held as a whole for up to some
thousand items only; for more, a block of its rows says which items to visit for some columns, and X which of G each of
these columns needs.

Departure: of the items that pass, the `candidates` are visited that alone would lower the objective most.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_array

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.closed_form import ClosedFormModel, ItemWeightSettings
from rankformer.scoring.item_matrix import SparseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.settings import TunedSettings
from rankformer.training.context import WarmStart

_NUMBERS_AT_ONCE = 2**22  # in the Gram matrices of the columns that are solved together
_MOST_ITEMS = 8192  # whose Gram matrix is held: 256 MB
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 256, 1024
_SMALLEST_CHANGE = 1e-4  # of a weight, below which descent ends

_Weights = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]  # targets, sources and values


class SLIMSettings(TunedSettings, ItemWeightSettings):
    """Hyperparameters of SLIM."""

    l1: float = Field(default=0.5, ge=0)
    """L1 regularization of the weights: the larger, the fewer of them are left."""
    l2: float = Field(default=100.0, gt=0)
    """L2 regularization of the weights."""
    iterations: int = Field(default=50, ge=1)
    """Most passes of coordinate descent."""
    candidates: int | None = Field(default=200, ge=1)
    """Items that may get a weight for an item, the most promising; none means all."""


class SLIM(ClosedFormModel):
    """Sparse, non-negative item weights that predict each item from the others.

    Use it for weights that are few and easy to read, on logs with thousands of items.
    """

    name = "slim"
    title = "SLIM"
    paper = "Ning and Karypis, SLIM: Sparse Linear Methods for Top-N Recommender Systems, ICDM 2011"
    settings: SLIMSettings
    deterministic = True
    has_vectors = False
    ladder = {"l2": (20.0, 100.0, 500.0), "l1": (0.02, 0.1, 0.5, 2.0)}
    search_space = {
        "l1": {"low": 0.1, "high": 10.0, "log": True},
        "l2": {"low": 5.0, "high": 1000.0, "log": True},
    }

    @ClosedFormModel.takes(SLIMSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> ItemScorer:
        return self._solved(graph, csr_array((0, 0), dtype=np.float32))

    def solve_from(self, graph: BipartiteGraph, warm: WarmStart) -> ItemScorer:
        """Return the same weights, to `_SMALLEST_CHANGE`, by descent from the earlier ones: a few passes do."""
        matrix = cast(SparseWeights, cast(ItemScorer, warm.scorer).matrix)
        parts = matrix.values.numpy(), matrix.sources.numpy(), matrix.offsets.numpy()
        return self._solved(graph, csr_array(parts, shape=(matrix.num_items, matrix.num_items)))

    def _solved(self, graph: BipartiteGraph, start: csr_array) -> ItemScorer:
        """Return the weights that descent finds from those of `start`, (targets, sources) of the first items."""
        settings, m = self.settings, graph.num_items
        x = graph.interaction_matrix(settings.count_duplicates)
        by_item = x.T.tocsr()  # (m, n)
        gram = _gram(by_item) if m <= _MOST_ITEMS else None

        def inner(items: NDArray[np.int64]) -> NDArray[np.float32]:
            """Return the part of G that is between some items, (c, c)."""
            if gram is not None:
                return gram[np.ix_(items, items)]
            rows = by_item[items]
            return (rows @ rows.T).toarray()  # type: ignore[no-any-return]

        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            solve = partial(_solve, inner, start, settings)
            solved = list(pool.map(solve, _batches(by_item, settings)))
        targets, sources, values = (np.concatenate(parts) for parts in zip(*solved, strict=True))
        weights = csr_array((values, (targets, sources)), shape=(m, m))
        return ItemScorer(SparseWeights.of_rows(weights), x, settings.count_duplicates)


class _Columns(NamedTuple):
    """Some columns of W that are solved together: their items (b,), and the candidates of each in one array."""

    targets: NDArray[np.int64]
    starts: NDArray[np.int64]  # (b + 1,) where the candidates of each start
    sources: NDArray[np.int64]
    together: NDArray[np.float32]  # G_ji of each candidate j


def _batches(by_item: csr_array, settings: SLIMSettings) -> Iterator[_Columns]:
    """Yield all columns, those with many candidates first."""
    m, blocks = by_item.shape[0], range(0, by_item.shape[0], _ROWS_AT_ONCE)
    found = [_candidates(by_item, np.arange(start, min(start + _ROWS_AT_ONCE, m)), settings) for start in blocks]
    targets, sources, together = (np.concatenate(parts) for parts in zip(*found, strict=True))
    sizes = np.bincount(targets, minlength=m)
    first = np.cumsum(sizes) - sizes
    columns = np.argsort(-sizes, kind="stable")
    start = 0
    while start < m:
        largest = int(sizes[columns[start]])
        count = max(1, min(_COLUMNS_AT_ONCE, _NUMBERS_AT_ONCE // max(1, largest) ** 2))
        some = columns[start : start + count]
        places = np.concatenate([np.arange(first[each], first[each] + sizes[each]) for each in some])
        starts = np.concatenate([[0], np.cumsum(sizes[some])])
        yield _Columns(some, starts, sources[places], together[places])
        start += count


def _candidates(by_item: csr_array, targets: NDArray[np.int64], settings: SLIMSettings) -> _Weights:
    """Return the candidates of some items: targets, sources and G_ji, sorted by target."""
    gram = (by_item[targets] @ by_item.T).tocoo()
    kept = (gram.data > settings.l1) & (gram.col != targets[gram.row])
    rows, sources, together = gram.row[kept], gram.col[kept].astype(np.int64), gram.data[kept]
    # One weight alone lowers the objective by half the square of this.
    gain = (together - settings.l1) / np.sqrt(by_item.power(2).sum(axis=1)[sources] + settings.l2)
    order = np.lexsort((sources, -gain, rows))
    rows = rows[order]
    if settings.candidates is not None:
        near = np.arange(len(rows)) - np.searchsorted(rows, rows) < settings.candidates
        rows, order = rows[near], order[near]
    return targets[rows], sources[order], together[order]


def _gram(by_item: csr_array) -> NDArray[np.float32]:
    """Return G = X^T X, (m, m)."""
    blocks = [by_item[start : start + _ROWS_AT_ONCE] for start in range(0, by_item.shape[0], _ROWS_AT_ONCE)]
    return np.concatenate([(rows @ by_item.T).toarray().astype(np.float32, copy=False) for rows in blocks])


def _solve(
    inner: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    start_at: csr_array,
    settings: SLIMSettings,
    columns: _Columns,
) -> _Weights:
    """Return the weights above 0 of some columns, as targets, sources and values."""
    sizes = np.diff(columns.starts)
    b, c = len(sizes), int(sizes.max(initial=0))
    grams = np.zeros(
        (c, b, c), np.float32
    )  # of each column's candidates; a candidate's row of all columns is one block
    missing = np.zeros((b, c), np.float32)  # G_ji - sum_k G_jk W_ki
    for number, (start, end) in enumerate(zip(columns.starts[:-1], columns.starts[1:], strict=True)):
        grams[: end - start, number, : end - start] = inner(columns.sources[start:end])
        missing[number, : end - start] = columns.together[start:end]
    weights = np.zeros((c, b), np.float32)
    for number in np.flatnonzero(columns.targets < start_at.shape[0]).tolist():
        sources = columns.sources[columns.starts[number] : columns.starts[number + 1]]
        known = np.flatnonzero(sources < start_at.shape[1])
        column = start_at[[columns.targets[number]]].toarray()[0]
        weights[known, number] = column[sources[known]]
        missing[number] -= weights[:, number] @ grams[:, number]
    diagonal = np.ascontiguousarray(grams.diagonal(axis1=0, axis2=2).T)  # (c, b)
    scale = 1 / (diagonal + settings.l2)
    buffer = np.empty_like(missing)
    for _ in range(settings.iterations):
        largest = 0.0
        for j in range(c):
            best = np.maximum((missing[:, j] + diagonal[j] * weights[j] - settings.l1) * scale[j], 0)  # (b,)
            change = best - weights[j]
            size = float(np.abs(change).max())
            if size:
                weights[j] = best
                missing -= np.multiply(grams[j], change[:, None], out=buffer)
                largest = max(largest, size)
        if largest < _SMALLEST_CHANGE:
            break
    held = np.arange(c) < sizes[:, None]  # (b, c)
    values = weights.T[held]
    kept = values > 0
    return np.repeat(columns.targets, sizes)[kept], columns.sources[kept], values[kept]
