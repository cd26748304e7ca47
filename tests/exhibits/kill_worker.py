"""Compute one cell that takes a while; run as a program by `test_runner.py`, which kills it.

python kill_worker.py DATA CELLS
"""

import sys
from pathlib import Path

import torch

from rankformer.data.source import DataSource
from rankformer.exhibits.cache import ResultCache
from rankformer.exhibits.cells import Cell, DataCard, training_cell
from rankformer.exhibits.compute import Conditions, compute
from rankformer.models.matrix_factorization import MatrixFactorizationSettings


def long_cell(folder: Path) -> Cell:
    """A training with many checkpoints, each a chance to be killed at."""
    settings = MatrixFactorizationSettings(epochs=400, validate_every=5, patience=100, embedding_dim=4)
    return training_cell(DataCard.of(DataSource(source=str(folder))), "mf", settings.model_dump(), 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute(long_cell(Path(sys.argv[1])), ResultCache(Path(sys.argv[2])), Conditions())
