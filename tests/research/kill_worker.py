"""Compute a training and die of SIGKILL on the way, after some checkpoints; run as a program by `test_runner.py`.

python kill_worker.py DATA RESULTS
"""

import os
import signal
import sys
from pathlib import Path

import torch

from rankformer.data.source import DataSource
from rankformer.models.matrix_factorization import MatrixFactorizationSettings
from rankformer.research.results import Computation, Dataset, ResultStore
from rankformer.research.runner import Conditions, compute

LAST_EPOCH = 13


def long_training(folder: Path) -> Computation:
    """A training of 30 epochs with a checkpoint every 5."""
    settings = MatrixFactorizationSettings(epochs=30, validate_every=5, patience=100, embedding_dim=4)
    data = Dataset.of(DataSource(source=str(folder)))
    return Computation("training", settings.hyperparameters(), 0, "mf", data, "mf")


def die_late(event: dict[str, object]) -> None:
    if event["epoch"] == LAST_EPOCH:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    compute(long_training(Path(sys.argv[1])), ResultStore(Path(sys.argv[2])), Conditions(), die_late)
