"""How things are measured: interleaved repetitions, medians and spread, peak memory in a process of its own."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one thing over several repetitions."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def __str__(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        return f"{format_seconds(self.median)} ({format_seconds(low)} to {format_seconds(high)})"


def format_seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def interleave(tasks: dict[str, Callable[[], object]], rounds: int, per_round: dict[str, int]) -> dict[str, Timing]:
    """Return timings taken in turns, so that a slow minute of the machine hits every task alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()  # warm-up
    for _ in range(rounds):
        for name, task in tasks.items():
            for _ in range(per_round.get(name, 1)):
                started = time.perf_counter()
                task()
                seconds[name].append(time.perf_counter() - started)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def peak_memory_here() -> float:
    """Return the peak resident memory of this process in megabytes."""
    scale = 1024 if sys.platform != "darwin" else 1024 * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def in_fresh_process(arguments: Sequence[str]) -> dict[str, float]:
    """Return what `python -m benchmarks.child ARGUMENTS` prints as JSON."""
    command = [sys.executable, "-m", "benchmarks.child", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ.copy())
    if result.returncode != 0:
        # A textbook version that needs more memory than there is gets killed: that is a result too.
        return {"failed": float(result.returncode)}
    return dict(json.loads(result.stdout.splitlines()[-1]))
