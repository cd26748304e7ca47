"""Structural encoding of nodes: the truncated singular value decomposition of the interaction matrix."""

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph

_SMALL_SIDE = 512  # up to here the full decomposition is cheaper than iterating
_MEDIUM_SIDE = 1024  # up to here, and with float64, Lanczos iteration is quick enough
_ZERO = 1e-6  # singular values below this fraction of the largest are rounding
_MORE_COLUMNS, _DEGREE, _MOST_ITERATIONS = 64, 6, 30  # of the filtered iteration
_LEAST_CUT = 1e-3  # where the filter begins to grow, of the largest squared value: a matrix of low rank is no overflow
_SETTLED = 1e-5  # change of the squared singular values, of the largest, at which it ends


def structural_encoding(
    graph: BipartiteGraph, dim: int, seed: int, *, normalized: bool = False, exact: bool = True
) -> Tensor:
    """Return [U S^1/2 ; V S^1/2], (n+m, dim) float32 with users first, of the `dim` largest singular values of R.

    The users' rows times the items' are the best approximation of R of that rank. Columns fall in size, those beyond
    the rank of R are 0; of the two signs of each, the one with the largest item entry positive is taken. A node without
    interactions gets zeros. R counts the training interactions, duplicates one by one; `normalized` is for
    D_u^-1/2 R D_i^-1/2 in its place. The seed decides where the iteration starts, and so affects rounding only. On a
    large graph `exact=False` is several times faster: float32, singular values to about 1e-5 of the largest.
    """
    matrix = graph.interaction_matrix(count_duplicates=True).astype(np.float64)
    if normalized:
        entries, degree = matrix.tocoo(), graph.degree.cpu().numpy()
        matrix.data /= np.sqrt(degree[entries.row] * degree[graph.num_users + entries.col])
    right_singular = _right_singular if exact or min(matrix.shape) <= _MEDIUM_SIDE else _filtered_right_singular
    values, items = right_singular(matrix, min(dim, *matrix.shape), seed)
    found = values > _ZERO * values.max()
    values, items = values[found], items[:, found]
    items = items * np.where(items[np.abs(items).argmax(0), np.arange(items.shape[1])] < 0, -1.0, 1.0)
    encoding = torch.zeros(graph.num_nodes, dim)
    # U S^1/2 = R V S^-1/2: so the product of both sides is R V V^T, as exact as V is.
    encoding[: graph.num_users, : len(values)] = torch.from_numpy(matrix @ items / np.sqrt(values)).float()
    encoding[graph.num_users :, : len(values)] = torch.from_numpy(items * np.sqrt(values)).float()
    return encoding.to(graph.device)


def _right_singular(matrix: csr_array, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest singular values (k,), falling, and the right singular vectors (m, k) with k <= count."""
    n, m = matrix.shape
    if min(n, m) > _SMALL_SIDE and count < min(n, m):
        start = np.random.default_rng(seed).standard_normal(min(n, m))
        _, values, vectors = svds(matrix, k=count, v0=start)
        order = np.argsort(-values, kind="stable")
        return values[order], vectors[order].T
    squares, vectors = np.linalg.eigh((matrix.T @ matrix if m <= n else matrix @ matrix.T).toarray())
    values, vectors = np.sqrt(squares.clip(min=0))[::-1][:count], vectors[:, ::-1][:, :count]
    return values, vectors if m <= n else matrix.T @ vectors / np.maximum(values, np.finfo(float).tiny)


def _filtered_right_singular(matrix: csr_array, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same by Chebyshev-filtered subspace iteration in float32, (k,) and (m, k).

    A block of vectors is multiplied by a polynomial of G, the smaller of R^T R and R R^T, that is at most 1 below the
    block's smallest Ritz value h and grows steeply above (Zhou et al., "Self-consistent-field calculations using
    Chebyshev-filtered subspace iteration", J. Comput. Phys. 2006): T_0 = X, T_1 = C X, T_j+1 = 2 C T_j - T_j-1 with
    C = (2 / h) G - 1. One pass over the interactions serves the whole block.
    """
    forth, back = (_as_tensor(each) for each in (matrix, matrix.T.tocsr()))
    if matrix.shape[1] > matrix.shape[0]:
        forth, back = back, forth  # G is that of the shorter side
    size = min(matrix.shape)
    width = min(count + _MORE_COLUMNS, size)
    start = torch.randn(size, width, generator=torch.Generator().manual_seed(seed))
    block, settled = torch.linalg.qr(start)[0], torch.zeros(count)
    for _ in range(_MOST_ITERATIONS):
        product = back @ (forth @ block)
        ritz, rotation = torch.linalg.eigh(block.T @ product)  # rising
        before, settled = settled, ritz[width - count :]
        if (settled - before).abs().max() <= _SETTLED * settled.max():
            break
        half = float(ritz[0].clamp(min=_LEAST_CUT * ritz[-1])) / 2
        earlier, filtered = block, product / half - block
        for _ in range(_DEGREE - 1):
            earlier, filtered = filtered, (2 / half) * (back @ (forth @ filtered)) - 2 * filtered - earlier
        block = torch.linalg.qr(filtered)[0]
    vectors, values = block @ rotation[:, width - count :].flip(1), settled.flip(0)
    values = values.where(values > _ZERO * values[0], 0).sqrt()  # squares in float32 hold no more
    if matrix.shape[1] > matrix.shape[0]:
        vectors = (forth @ vectors) / values.clamp(min=_ZERO)
    return values.double().numpy(), vectors.double().numpy()


def _as_tensor(matrix: csr_array) -> Tensor:
    rows, columns = (torch.from_numpy(each.astype(np.int64)) for each in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data).float()
    return torch.sparse_csr_tensor(rows, columns, values, size=matrix.shape, check_invariants=False)
