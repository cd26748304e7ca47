"""Structural encoding of nodes: the truncated singular value decomposition of the interaction matrix."""

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph

_SMALL_SIDE = 512  # up to here the full decomposition is cheaper than iterating
_ZERO = 1e-6  # singular values below this fraction of the largest are rounding


def structural_encoding(graph: BipartiteGraph, dim: int, seed: int, *, normalized: bool = False) -> Tensor:
    """Return [U S^1/2 ; V S^1/2], (n+m, dim) float32 with users first, of the `dim` largest singular values of R.

    The users' rows times the items' are the best approximation of R of that rank. Columns fall in size, those beyond
    the rank of R are 0; of the two signs of each, the one with the largest item entry positive is taken. A node without
    interactions gets zeros. R counts the training interactions, duplicates one by one; `normalized` is for
    D_u^-1/2 R D_i^-1/2 in its place. The seed decides where the iteration starts, and so affects rounding only.
    """
    matrix = graph.interaction_matrix(count_duplicates=True).astype(np.float64)
    if normalized:
        entries, degree = matrix.tocoo(), graph.degree.cpu().numpy()
        matrix.data /= np.sqrt(degree[entries.row] * degree[graph.num_users + entries.col])
    values, items = _right_singular(matrix, min(dim, *matrix.shape), seed)
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
