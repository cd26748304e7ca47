"""The training log: one event per epoch and validation, kept in step with the checkpoints; its summary."""

import json
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankformer.errors import RunFolderError
from rankformer.files import write_bytes_atomic

LOG = "log.jsonl"
_NOT_METRICS = {"event", "epoch", "best", "seconds"}


class TrainingLog:
    """Events of a training, in memory and, given a path, as lines of a file."""

    def __init__(
        self, path: Path | None = None, on_event: Callable[[dict[str, Any]], None] | None = None, writes: bool = True
    ) -> None:
        self.path, self.writes = path, writes  # of several ranks, the first writes
        self.on_event = on_event
        self.events: list[dict[str, Any]] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, event: dict[str, Any]) -> None:
        """Add an event; it reaches the file before the call returns."""
        self.events.append(event)
        if self.path is not None and self.writes:
            with open(self.path, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(event) + "\n")
        if self.on_event is not None:
            self.on_event(event)

    def sync(self) -> int:
        """Return how many events there are, once all are safely on disk."""
        if self.path is not None and self.path.exists():
            with open(self.path, "rb") as stream:
                os.fsync(stream.fileno())
        return len(self.events)

    def rewind(self, count: int) -> None:
        """Keep the first `count` events of the file: those that the checkpoint being resumed knew of."""
        if self.path is None or not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines()[:count]
        self.events = [json.loads(line) for line in lines]
        if self.writes:
            write_bytes_atomic(self.path, "".join(json.dumps(event) + "\n" for event in self.events).encode())


@dataclass(frozen=True)
class TrainingHistory:
    """How a training went."""

    epochs: int = 0  # number of epochs, 0 for methods that are solved
    best_epoch: int = 0  # epoch of the best validation, the last without any
    seconds: float = 0.0  # of the whole training, validations included
    seconds_to_best: float = 0.0  # until the best validation
    seconds_per_epoch: float | None = None  # median over epochs, validations and checkpoints left out; None without any
    validations: dict[int, float] = field(default_factory=dict)  # value of the metric by epoch


def history_of(log: Sequence[dict[str, Any]], metric: str | None = None) -> TrainingHistory:
    """Return the training history that a training log holds.

    Args:
        log: the events.
        metric: which one to collect from the validations; the first of each by default.
    """
    if not log:
        return TrainingHistory()
    epochs = [event for event in log if event["event"] == "epoch"]
    validations = {
        event["epoch"]: event[metric or next(key for key in event if key not in _NOT_METRICS)]
        for event in log
        if event["event"] == "validation"
    }
    if not epochs:
        solved = next((event["seconds"] for event in log if event["event"] == "solved"), log[-1]["seconds"])
        return TrainingHistory(seconds=log[-1]["seconds"], seconds_to_best=solved, validations=validations)
    best = next((event for event in reversed(log) if event.get("best")), log[-1])
    before = [0.0, *(event["seconds"] for event in log)]
    durations = [event["seconds"] - before[at] for at, event in enumerate(log) if event["event"] == "epoch"]
    return TrainingHistory(
        epochs=epochs[-1]["epoch"],
        best_epoch=best["epoch"],
        seconds=log[-1]["seconds"],
        seconds_to_best=best["seconds"],
        seconds_per_epoch=statistics.median(durations),
        validations=validations,
    )


def blend_report(log: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what a training log says of a blend, None for other models.

    It has the validation `value`, the `members` with `label`, `settings`, `weight`, `alone`, `without` (the blend
    without it) and `seconds`, the heaviest first, and the `refused` ones with the reason.
    """
    found = next((event for event in log if event.get("event") == "blend"), None)
    if found is None:
        return None
    members = [
        {**{name: each[name] for name in ("label", "settings", "weight")}, "alone": each.get("alone", each["value"])}
        | {name: each[name] for name in ("without", "seconds")}
        for each in sorted(found["members"], key=lambda each: -each["weight"])
    ]
    return {"value": found["value"], "members": members, "refused": found["refused"]}


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the training log of a run or an unfinished training, empty without one."""
    path = folder / LOG
    events = [json.loads(line) for line in path.read_bytes().splitlines()] if path.is_file() else []
    for event in events:
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            raise RunFolderError(f"{path} has a line that is not an event of a training")
    return events


def is_training_log(path: Path) -> bool:
    """Whether a file holds events and nothing else; the last may be cut off."""
    if not path.is_file() or path.is_symlink():
        return False
    with open(path, "rb") as stream:
        for line in stream:
            try:
                event = json.loads(line) if line.endswith(b"\n") else {"event": "cut off"}
            except ValueError:
                return False
            if not isinstance(event, dict) or "event" not in event:
                return False
    return True
