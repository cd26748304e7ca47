"""How things are measured: interleaved repetitions, medians and spread, peak memory in a process of its own."""

import json
import os
import resource
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OUT_OF_MEMORY_SIGNALS = (-6, -9, -11)  # abort in an allocator, the kernel's killer, a failed stack
Result = dict[str, Any]


class Unavailable(Exception):
    """Something a section needs is not there: a model, a library, an earlier section's results."""


def spread(seconds: Sequence[float]) -> Result:
    """Return median, extremes and count of repetitions, ready for JSON."""
    return {
        "median": statistics.median(seconds),
        "low": min(seconds),
        "high": max(seconds),
        "count": len(seconds),
    }


def show(timing: Mapping[str, float]) -> str:
    """Return a spread as text: the median, then the fastest and the slowest repetition."""
    return f"{show_seconds(timing['median'])} ({show_seconds(timing['low'])} to {show_seconds(timing['high'])})"


def show_seconds(value: float) -> str:
    if value >= 100:
        return f"{value:.0f} s"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def paragraph(*sentences: str) -> list[str]:
    """Return text as lines of one width."""
    return textwrap.wrap(" ".join(sentences), 118, break_long_words=False, break_on_hyphens=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]


def note(text: str) -> None:
    """Say on stderr what is being measured."""
    print(text, file=sys.stderr, flush=True)


def interleave(
    tasks: Mapping[str, Callable[[], object]], rounds: int, per_round: Mapping[str, int] | None = None
) -> dict[str, Result]:
    """Return spreads of tasks taken in turns, so that a slow minute of the machine hits every task alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()  # warm-up
    for _ in range(rounds):
        for name, task in tasks.items():
            for _ in range((per_round or {}).get(name, 1)):
                seconds[name].append(seconds_of(task))
    return {name: spread(values) for name, values in seconds.items()}


def seconds_of(task: Callable[[], object]) -> float:
    started = time.perf_counter()
    task()
    return time.perf_counter() - started


def peak_memory_mb() -> float:
    """Return the peak resident memory of this process since it started its program."""
    try:
        # Linux's ru_maxrss starts at the peak of the process that spawned this one; VmHWM starts anew.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        scale = 1024 * 1024 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def bare_torch() -> Result:
    """Return the peak memory of an interpreter that has loaded torch and made a tensor."""
    import torch

    torch.zeros(1)
    return {"peak_mb": peak_memory_mb()}


def in_fresh_process(
    function: Callable[..., Result],
    *,
    memory_limit_gb: float | None = None,
    environment: Mapping[str, str] | None = None,
    **arguments: object,
) -> Result:
    """Return what a module's function returns in a process of its own, or {"does_not_fit": True}.

    Args:
        function: importable by its module and name; takes and returns what JSON can hold.
        memory_limit_gb: bound on the address space; without it, running out of memory is an error.
        environment: variables to set for the process.
        arguments: of the function, by name.
    """
    target = f"{function.__module__}:{function.__name__}"
    command = [sys.executable, "-m", "benchmarks.child", target, json.dumps(arguments), str(memory_limit_gb or 0)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=ROOT)
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    if memory_limit_gb and done.returncode in OUT_OF_MEMORY_SIGNALS:
        return {"does_not_fit": True}
    raise RuntimeError(f"{target} ended with {done.returncode}:\n{done.stderr[-2000:]}")
