"""Compute a cell and die of SIGKILL on the way, after some checkpoints; run as a program by `test_runner.py`.

python kill_worker.py DATA CELLS
"""

import os
import signal
import sys
from pathlib import Path

import torch

from rankformer.data.source import DataSource
from rankformer.models.matrix_factorization import MatrixFactorizationSettings
from rankformer.research.cache import ResultCache
from rankformer.research.cells import Cell, DataCard, training_cell
from rankformer.research.compute import Conditions, compute

LAST_EPOCH = 13


def long_cell(folder: Path) -> Cell:
    """A training of 30 epochs with a checkpoint every 5."""
    settings = MatrixFactorizationSettings(epochs=30, validate_every=5, patience=100, embedding_dim=4)
    return training_cell(DataCard.of(DataSource(source=str(folder))), "mf", settings.model_dump(), 0)


def die_late(event: dict[str, object]) -> None:
    if event["epoch"] == LAST_EPOCH:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute(long_cell(Path(sys.argv[1])), ResultCache(Path(sys.argv[2])), Conditions(), die_late)
