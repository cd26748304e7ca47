"""`log.jsonl`: one JSON object per epoch and validation, kept in step with the checkpoints."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankformer.files import write_bytes_atomic


class RunLog:
    """Events of a run, in memory and, given a path, as lines of a file."""

    def __init__(self, path: Path | None = None, on_event: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path = path
        self.on_event = on_event
        self.events: list[dict[str, Any]] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def append(self, event: dict[str, Any]) -> None:
        """Add an event; it reaches the file before the call returns."""
        self.events.append(event)
        if self.path is not None:
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
        self.write(self.path)

    def write(self, path: Path) -> None:
        """Write all events to a file, atomically."""
        write_bytes_atomic(path, "".join(json.dumps(event) + "\n" for event in self.events).encode())
