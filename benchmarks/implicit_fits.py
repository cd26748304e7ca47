"""Fits of the `implicit` library, in a process that loads nothing else that starts threads."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.measure import Result

# The library's own advice: its loops are parallel already, a second pool inside BLAS slows them down.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def fit_settings(library: str, pairs: str, settings: list[dict[str, Any]], folder: str, rounds: int) -> Result:
    """Fit each of the settings and keep its factors as `folder/NUMBER.npz`.

    Args:
        library: als or bpr.
        pairs: file with the arrays users, items and shape.
        settings: arguments of the model, one dictionary per fit.
        folder: where the factors go.
        rounds: how often each is fitted; the factors of the last one are kept.

    Returns:
        seconds: of each round, per setting.
    """
    matrix = read_matrix(Path(pairs))
    seconds = []
    warm_up(library, matrix)
    for number, setting in enumerate(settings):
        taken = []
        for _ in range(rounds):
            model = make_model(library, setting)
            started = time.perf_counter()
            model.fit(matrix, show_progress=False)
            taken.append(time.perf_counter() - started)
        save_factors(Path(folder) / f"{number}.npz", model, matrix.shape)
        seconds.append(taken)
    return {"seconds": seconds}


def read_matrix(path: Path) -> scipy.sparse.csr_matrix:
    """Return users x items; a pair that is repeated has its count as value."""
    arrays = np.load(path)
    values = np.ones(len(arrays["users"]), dtype=np.float32)
    return scipy.sparse.csr_matrix((values, (arrays["users"], arrays["items"])), shape=tuple(arrays["shape"]))


def make_model(library: str, setting: dict[str, Any]) -> Any:
    from implicit.cpu.als import AlternatingLeastSquares
    from implicit.cpu.bpr import BayesianPersonalizedRanking

    kind = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}[library]
    return kind(**setting, random_state=0)


def warm_up(library: str, matrix: scipy.sparse.csr_matrix) -> None:
    make_model(library, {"factors": 8, "iterations": 1}).fit(matrix, show_progress=False)


def save_factors(path: Path, model: Any, shape: tuple[int, int]) -> None:
    """Keep rows whose inner product is the score; BPR's last column is 1 for users and the bias for items."""
    users, items = np.asarray(model.user_factors), np.asarray(model.item_factors)
    if (len(users), len(items)) != tuple(shape):
        raise ValueError(f"factors of {len(users)} users and {len(items)} items for a matrix of {shape}")
    np.savez(path, users=users, items=items)
