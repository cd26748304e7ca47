"""Where results are kept: one sealed JSON file per cell, written in one step, and a folder for unfinished work.

    CELLS/<key>.json            identity and result of a finished cell, with a seal over both
    CELLS/unfinished/<key>/     log and checkpoint of a training that is under way; removed when the result is there
    CELLS/unfinished/<key>.lock held by the process that computes the cell

Nothing here can execute, and a file that was damaged or belongs to another cell does not count as a result.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rankformer.errors import RunFolderError
from rankformer.files import sealed_json, unseal_json, write_bytes_atomic
from rankformer.research.cells import Cell, Result


class Found(NamedTuple):
    """What the cache has for a cell: a result, or why a file that is there does not count, or neither."""

    result: Result | None = None
    problem: str | None = None


@dataclass(frozen=True)
class ResultCache:
    """The results in one folder, which is made at the first write."""

    folder: Path

    def path_of(self, cell: Cell) -> Path:
        """Return where a cell's result is kept."""
        return self.folder / f"{cell.key}.json"

    def work_folder(self, cell: Cell) -> Path:
        """Return where a cell's computation may keep what it needs to go on after a stop."""
        return self.folder / "unfinished" / cell.key

    def load(self, cell: Cell) -> Found:
        """Return what is known of a cell."""
        path = self.path_of(cell)
        if not path.exists():
            return Found()
        try:
            content = unseal_json(path)
        except RunFolderError as error:
            return Found(problem=f"{error}; it is computed again")
        # Compared as JSON, since that is what a tuple becomes on disk.
        if content.get("identity") != json.loads(json.dumps(cell.identity)) or "result" not in content:
            return Found(problem=f"{path} holds another cell's result than its name says; it is computed again")
        return Found(dict(content["result"]))

    def store(self, cell: Cell, result: Result) -> None:
        """Keep a result and drop the unfinished work behind it."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"label": cell.label, "created": created, "identity": cell.identity, "result": result}
        write_bytes_atomic(self.path_of(cell), sealed_json(content))
        shutil.rmtree(self.work_folder(cell), ignore_errors=True)

    @contextmanager
    def locked(self, cell: Cell) -> Iterator[None]:
        """Hold the cell against other processes, waiting for one that computes it; a dead holder lets go by itself."""
        path = self.work_folder(cell).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Whoever waits on the removed file, or makes a new one, finds the result before it computes.
                if self.path_of(cell).exists():
                    path.unlink(missing_ok=True)
