"""What a run of the suite was asked to do."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """The command line, shared by all sections.

    Attributes:
        rounds: turns that each timing takes.
        datasets: in place of each section's own choice; empty keeps that.
        loss_steps: steps over which the losses of the step section are compared.
        sizes: pairs of the synthetic graphs.
        memory_limit_gb: address space of the processes that may not fit.
        epochs: bound on each whole training, or None for the settings' own.
        budget_seconds: time that each mini-batch training gets.
        runs: run folders whose logs stand for the paper's settings in the quality section.
        results: folder of the sections' JSON files.
        figures: folder of the pictures.
    """

    rounds: int
    datasets: tuple[str, ...]
    loss_steps: int
    sizes: tuple[int, ...]
    memory_limit_gb: float
    epochs: int | None
    budget_seconds: float
    runs: tuple[Path, ...]
    results: Path
    figures: Path
