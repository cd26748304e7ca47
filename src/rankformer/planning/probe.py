"""A few epochs of the real model on a sample, in a process of its own, with time and peak memory measured there."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.errors import RankformerError
from rankformer.models.base import Model
from rankformer.models.registry import model_class
from rankformer.models.trained import TrainedModel
from rankformer.planning.machine import memory_now, peak_memory

_EPOCHS = 3  # the first one is not timed: it also sets up the optimizer


@dataclass(frozen=True)
class Cost:
    """What a fit takes, measured or extrapolated.

    Attributes:
        interactions: training interactions of the log it is about.
        growth: bytes by which the fit raises the memory of its process at most.
        setup: seconds before the first epoch (graph, initialization); of a method that is solved, the whole solution.
        epoch: seconds of an epoch, 0 for a method that is solved.
        validation: seconds of a validation, 0 without any.
    """

    interactions: int
    growth: int
    setup: float
    epoch: float
    validation: float

    @property
    def probe_seconds(self) -> float:
        """Seconds that a probe of this cost takes."""
        return self.setup + _EPOCHS * (self.epoch + self.validation)


def probe(model: Model, train: Interactions, valid: Interactions, changes: dict[str, Any]) -> Cost:
    """Return the cost of fitting the model, with some settings changed, on a sample.

    Raises:
        RankformerError: the fit failed, or the system ended it.
    """
    settings = {**model.settings.hyperparameters(), "seed": model.seed, **changes}
    if isinstance(model, TrainedModel):
        settings |= {"epochs": _EPOCHS, "validate_every": 1, "patience": _EPOCHS}
    task = {
        "model": f"{type(model).__module__}:{type(model).__qualname__}",
        "settings": settings,
        "sizes": {"num_users": train.num_users, "num_items": train.num_items},
        "train": len(train),
        "threads": torch.get_num_threads(),
    }
    columns = ["users", "items"] if train.weights is None else ["users", "items", "weights"]
    table = pa.table({name: np.concatenate([getattr(train, name), getattr(valid, name)]) for name in columns})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema.with_metadata({"task": json.dumps(task)})) as writer:
        writer.write_table(table)
    # A model of the user's own is importable there as it is here.
    code = f"import sys; sys.path[:] = {sys.path!r}; from rankformer.planning.probe import main; main()"
    answer = subprocess.run([sys.executable, "-c", code], input=stream.getvalue().to_pybytes(), capture_output=True)
    if answer.returncode:
        told = answer.stderr.decode(errors="replace").strip().splitlines()
        reason = told[-1] if told else f"the system ended it (signal {-answer.returncode}), perhaps for lack of memory"
        raise RankformerError(f"fitting {model.name} on a sample of {len(train):,} interactions failed: {reason}")
    return Cost(**json.loads(answer.stdout.splitlines()[-1]))


def main() -> None:
    """Do the task on stdin and print its cost."""
    table = pa.ipc.open_stream(sys.stdin.buffer).read_all()
    task = json.loads(table.schema.metadata[b"task"])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    log = Interactions.from_indices(**columns, **task["sizes"])
    rows = np.arange(len(log))
    torch.set_num_threads(task["threads"])
    model = model_class(task["model"])(**task["settings"])
    print(json.dumps(asdict(_measure(model, log.rows(rows[: task["train"]]), log.rows(rows[task["train"] :])))))


def _measure(model: Model, train: Interactions, valid: Interactions) -> Cost:
    before, started = memory_now(), _clocks()
    previous = started
    took: dict[str, list[float]] = {"epoch": [], "validation": []}

    def note(event: dict[str, Any]) -> None:
        nonlocal previous
        now = _clocks()
        took.setdefault(event["event"], []).append(min(now - previous))
        previous = now

    model.fit(train, valid, on_event=note)
    whole = min(_clocks() - started)
    validation = statistics.median(took["validation"][-2:] or [0.0])
    epoch = statistics.median(took["epoch"][1:] or [0.0])
    # What the first epoch took beyond an epoch is setup; a fit without epochs is nothing but setup.
    setup = took["epoch"][0] - epoch if took["epoch"] else whole - sum(took["validation"])
    return Cost(len(train), max(0, peak_memory() - before), max(0.0, setup), epoch, validation)


def _clocks() -> NDArray[np.float64]:
    # Other work on the machine lengthens the first, several threads the second; without either both are the same.
    return np.array([time.perf_counter(), time.process_time()])
