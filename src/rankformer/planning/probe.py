"""Peak memory of a model for which no count is written, measured on a small invented log in a process of its own.

Run as `python -m rankformer.planning.probe`; it reads what to train as JSON on stdin and prints one JSON object.
"""

import json
import subprocess
import sys
from typing import Any

import numpy as np

from rankformer.errors import RankformerError
from rankformer.models.base import GradientModel
from rankformer.models.registry import model_class
from rankformer.planning.machine import memory_now, peak_memory
from rankformer.planning.memory import Forecast, Shape
from rankformer.planning.sample import invented

SAMPLE_PAIRS = 300_000
_VALID_PAIRS = 200


def forecast_measured(model: GradientModel, shape: Shape, process: int) -> Forecast:
    """Return the peak of training a model: what a small training took beyond its start, times the ratio of sizes.

    Args:
        model: untrained.
        shape: of the training data.
        process: resident bytes before training: interpreter, libraries and the data that was read.
    """
    share = min(1.0, SAMPLE_PAIRS / shape.num_pairs)
    sizes = [max(2, round(size * share)) for size in (shape.num_users, shape.num_items, shape.num_pairs)]
    settings = model.settings.model_dump(mode="json")
    if model.settings.batch_size is not None:
        settings["batch_size"] = max(1, round(model.settings.batch_size * share))
    task = {"model": model.name, "settings": settings, "sizes": sizes, "validates": shape.validates}
    growth = round(_in_another_process(task) / share)
    return Forecast(process + growth, {"process and data": process, "training": growth}, "measured")


def _in_another_process(task: dict[str, Any]) -> int:
    """Return the bytes by which the training of a task raised the memory of its process."""
    command = [sys.executable, "-m", "rankformer.planning.probe"]
    answer = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True)
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise RankformerError(f"measuring the memory of {task['model']} on a small sample failed: {reason}")
    return int(json.loads(answer.stdout)["growth"])


def warm_up(model: GradientModel, validates: bool = True) -> None:
    """Train a copy of the model on next to nothing, so that every library it uses is loaded."""
    _train(type(model), model.settings.model_dump(), (20, 15, 100), validates)


def _train(method: type[GradientModel], settings: dict[str, Any], sizes: tuple[int, ...], validates: bool) -> int:
    """Return the resident bytes just before a training of two epochs on an invented log."""
    log = invented(*sizes)
    few = np.arange(len(log)) < min(_VALID_PAIRS, len(log) // 20)
    train, valid = log.rows(~few), log.rows(few) if validates else None
    before = memory_now()
    method(**{**settings, "epochs": 2, "validate_every": 1}).fit(train, valid)
    return before


def main() -> None:
    """Train what stdin asks for and print by how much the process grew."""
    task = json.load(sys.stdin)
    method = model_class(task["model"])
    assert issubclass(method, GradientModel)
    _train(method, task["settings"], (20, 15, 100), task["validates"])
    before = _train(method, task["settings"], tuple(task["sizes"]), task["validates"])
    print(json.dumps({"growth": max(0, peak_memory() - before)}))


if __name__ == "__main__":
    main()
