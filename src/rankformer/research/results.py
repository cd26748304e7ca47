"""What an experiment computes, and where the results are stored: one checksummed JSON file per result.

    RESULTS/<key>.json             what was computed, with which commit, and the result
    RESULTS/unfinished/<key>/      training log and checkpoint of a training under way; removed when it is done
    RESULTS/unfinished/<key>.lock  held by the process that computes it

A result is reused when model, settings, seed and data are the same. The commit is recorded, not compared: reports say
which results are from another one, and `--fresh` computes them again. Nothing here can execute, and a damaged file does
not count as a result.
"""

import base64
import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankformer.data.parts import Parts
from rankformer.data.source import DataSource
from rankformer.errors import RunFolderError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import write_bytes_atomic
from rankformer.runs.checksums import checksummed_json, read_checksummed_json

Result = dict[str, Any]
Results = dict[str, Result]  # by the key of the computation


@dataclass(frozen=True)
class Dataset:
    """A dataset that is present, as it was when the command started; `interactions` of train, valid and test."""

    name: str
    source: DataSource
    fingerprint: str
    users: int
    items: int
    interactions: tuple[int, int, int]

    @classmethod
    def of(cls, source: DataSource) -> "Dataset":
        """Return the description of a source, after loading it."""
        parts = load_parts(source)
        sizes = (len(parts.train), len(parts.valid), len(parts.test))
        return cls(source.name, source, parts.fingerprint, parts.train.num_users, parts.train.num_items, sizes)


@lru_cache(maxsize=2)
def load_parts(source: DataSource) -> Parts:
    """Return the parts of a source, kept for the next computation on the same data."""
    return source.load()


@dataclass(frozen=True, eq=False)
class Computation:
    """One training, or another piece of work; label and names of data are not part of its identity."""

    kind: Literal["training", "untrained", "lemma"]
    settings: dict[str, Any]  # every one, defaults included, so that a changed default is another computation
    seed: int
    model: str | None = None  # name or `package.module:Class` of the method, for trainings
    data: Dataset | None = None
    label: str = ""  # what progress lines and reports call it

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result, as values that JSON can hold."""
        fingerprint = self.data.fingerprint if self.data else None
        decides = {"kind": self.kind, "model": self.model, "settings": self.settings, "seed": self.seed}
        return json.loads(json.dumps({**decides, "data": fingerprint}))  # type: ignore[no-any-return]

    @cached_property
    def key(self) -> str:
        """SHA-256 of the identity, in hexadecimal."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()


class Found(NamedTuple):
    """What is stored for a computation: a result, or why the file does not count, or neither."""

    result: Result | None = None
    problem: str | None = None


@dataclass(frozen=True)
class ResultStore:
    """The results in one folder, which is made at the first write."""

    folder: Path

    def path_of(self, computation: Computation) -> Path:
        """Return where a result is stored."""
        return self.folder / f"{computation.key}.json"

    def work_folder(self, computation: Computation) -> Path:
        """Return where a computation keeps what it needs to continue after a stop."""
        return self.folder / "unfinished" / computation.key

    def load(self, computation: Computation) -> Found:
        """Return what is stored for a computation; the result names its commit."""
        path = self.path_of(computation)
        if not path.exists():
            return Found()
        try:
            content = read_checksummed_json(path)
        except RunFolderError as error:
            return Found(problem=f"{error}; it is computed again")
        if content.get("computation") != computation.identity or not {"result", "commit"} <= content.keys():
            return Found(problem=f"{path} holds another result than its name says; it is computed again")
        return Found({**content["result"], "commit": content["commit"]})

    def save(self, computation: Computation, result: Result) -> Result:
        """Store a result, remove the unfinished work behind it, and return it with its commit."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        head = {"label": computation.label, "created": created, "commit": code_version()}
        result = json.loads(json.dumps(result))  # as it will be read back: keys are strings
        content = {**head, "computation": computation.identity, "result": result}
        write_bytes_atomic(self.path_of(computation), checksummed_json(content))
        shutil.rmtree(self.work_folder(computation), ignore_errors=True)
        return {**result, "commit": head["commit"]}

    def remove(self, computation: Computation) -> None:
        """Delete the result and the unfinished work of a computation, so that it starts again."""
        self.path_of(computation).unlink(missing_ok=True)
        shutil.rmtree(self.work_folder(computation), ignore_errors=True)

    @contextmanager
    def locked(self, computation: Computation) -> Iterator[None]:
        """Wait for a process that works on the same computation, and keep others waiting; death releases the lock."""
        path = self.work_folder(computation).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Whoever waits on the removed file, or makes a new one, finds the result before it computes.
                if self.path_of(computation).exists():
                    path.unlink(missing_ok=True)


def pack(values: NDArray[np.float64]) -> str:
    """Return numbers as a string: 32-bit little-endian floats in base64."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def unpack(text: str) -> NDArray[np.float64]:
    """Return the numbers that `pack` wrote."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float64)


@cache
def code_version() -> str:
    """Return the git commit of this checkout, "+changes" added where files differ from it; else the version number."""
    here = Path(__file__)

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)  # an installed copy may lie inside a repository of something else
        changed = git("status", "--porcelain", "--", str(here.parents[1]))
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {installed_versions()['rankformer']}"
