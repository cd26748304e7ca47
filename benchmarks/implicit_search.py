"""The best settings of `implicit` on the validation part, and the same fits scored by our evaluator."""

import itertools
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.curves import METRIC, TEST_METRICS
from benchmarks.implicit_fits import ENVIRONMENT, fit_settings
from benchmarks.measure import Result, Unavailable, in_fresh_process, spread
from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.evaluation.evaluator import evaluate
from rankformer.evaluation.validator import make_validator
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

FACTORS = 64
GRIDS: dict[str, dict[str, list[Any]]] = {
    "als": {
        "regularization": [30.0, 100.0, 300.0, 1000.0, 3000.0],
        "alpha": [20.0, 80.0, 320.0, 1280.0],
        "iterations": [15, 30],
    },
    "bpr": {
        "learning_rate": [0.02, 0.05, 0.1],
        "regularization": [0.01, 0.03, 0.1],
        "iterations": [100, 300],
    },
}


def require_implicit() -> None:
    if find_spec("implicit") is None:
        raise Unavailable("the library implicit is not installed; pip install -e '.[bench]'")


def grid_of(library: str, quick: bool) -> list[dict[str, Any]]:
    """Return every combination of the library's grid; of a quick run, each hyperparameter's first value."""
    grid = GRIDS[library]
    values = [options[:1] if quick else options for options in grid.values()]
    return [{"factors": FACTORS, **dict(zip(grid, chosen, strict=True))} for chosen in itertools.product(*values)]


def fit_and_score(
    library: str, parts: Parts, settings: list[dict[str, Any]], rounds: int
) -> tuple[list[list[float]], list[float], list[Embeddings]]:
    """Return the seconds of each round, the validation score and the vectors of each setting."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.npz"
        write_pairs(pairs, parts.train)
        arguments = {"library": library, "pairs": str(pairs), "settings": settings, "folder": folder, "rounds": rounds}
        seconds = in_fresh_process(fit_settings, environment=ENVIRONMENT, **arguments)["seconds"]
        fits = [read_factors(Path(folder) / f"{number}.npz") for number in range(len(settings))]
    validate = make_validator(parts.train, parts.valid, METRIC)
    return seconds, [validate(fit)[METRIC] for fit in fits], fits


def search(library: str, parts: Parts, rounds: int, quick: bool) -> Result:
    """Return the setting with the best validation score, its test metrics, and what finding it took."""
    settings = grid_of(library, quick)
    seconds, scores, fits = fit_and_score(library, parts, settings, 1)
    best = int(np.argmax(scores))
    refits, _, _ = fit_and_score(library, parts, [settings[best]], rounds)
    return {
        "setting": settings[best],
        "at_edge": hyperparameters_at_edge(library, settings[best]),
        "fit": spread(refits[0]),
        "grid_fits": len(settings),
        "grid_seconds": sum(sum(taken) for taken in seconds),
        "valid": scores[best],
        "test": test_metrics(parts, fits[best]),
        "grid": [{**setting, METRIC: score} for setting, score in zip(settings, scores, strict=True)],
    }


def test_metrics(parts: Parts, fit: Embeddings) -> dict[str, float]:
    train = parts.train
    recommender = Recommender(fit, train.user_ids, train.item_ids, train)
    return evaluate(recommender, parts.test, metrics=TEST_METRICS).metrics


def hyperparameters_at_edge(library: str, setting: dict[str, Any]) -> list[str]:
    """Return the hyperparameters whose chosen value is the grid's smallest or largest: a wider grid might do better."""
    return [name for name, values in GRIDS[library].items() if setting[name] in (min(values), max(values))]


def write_pairs(path: Path, train: Interactions) -> None:
    np.savez(path, users=train.users, items=train.items, shape=np.array([train.num_users, train.num_items]))


def read_factors(path: Path) -> Embeddings:
    arrays = np.load(path)
    return Embeddings(*(torch.from_numpy(np.ascontiguousarray(arrays[side])) for side in ("users", "items")))
