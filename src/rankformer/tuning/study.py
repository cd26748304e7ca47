"""A search kept in a folder, so that it can be stopped at any moment and continued.

    study.json    what is searched and every finished trial; checksummed, and replaced as a whole after each trial
    running/      training log and checkpoint of the trial that runs
    study.lock    held while a process works on the folder; the system releases it when the process ends

A process killed at any instant leaves `study.json` with all trials that had finished, and the one that had not
continues from its last checkpoint. A search of other data, another model, space or seed is refused.
"""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankformer.errors import RunFolderError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import write_bytes_atomic
from rankformer.models.quick_search import quick_search
from rankformer.runs.checkpoint import check_identity
from rankformer.runs.checksums import checksummed_json, read_checksummed_json
from rankformer.tuning.objective import RUNNING, Objective, TimeIsUp, Trial
from rankformer.tuning.space import Space, to_json
from rankformer.tuning.strategy import falls_behind, propose

if TYPE_CHECKING:
    from rankformer.tuning.storage import Storage

FORMAT = 1
STUDY, LOCK = "study.json", "study.lock"


@dataclass(frozen=True)
class Study:
    """What is searched, and the trials so far.

    Attributes:
        objective: gives the value of settings.
        space: what varies.
        trials: the finished ones, in order.
        storage: address of a database that holds the trials as well, None for the folder alone.
    """

    objective: Objective
    space: Space
    trials: list[Trial] = field(default_factory=list)
    storage: str | None = None

    @property
    def path(self) -> Path:
        """Where the search is kept."""
        return self.objective.folder / STUDY

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest value, the earliest of equals; None without any."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        return max(complete, key=lambda trial: trial.value or 0.0, default=None)

    def identity(self) -> dict[str, Any]:
        """Return what makes this search the one it is; a folder with another one is refused."""
        aim = self.objective
        return {
            "model": aim.method.name,
            "data": aim.data.fingerprint,
            "seed": aim.seed,
            "fixed settings": dict(aim.fixed),
            "search space": to_json(self.space),
        }

    @cached_property
    def database(self) -> "Storage | None":
        """The search in the database, opened on first use; None without one."""
        if self.storage is None:
            return None
        from rankformer.tuning.storage import Storage

        aim = self.objective
        return Storage(self.storage, self.identity(), f"{aim.method.name} on {aim.data.name}", self.space)

    def load(self) -> None:
        """Read the trials in the folder and the database, if there are any.

        A damaged search, or another one, is a RunFolderError.
        """
        if self.path.exists():
            self._read_folder()
        if self.database is not None:
            there = self.database.trials()
            if len(there) > len(self.trials) and there[: len(self.trials)] == self.trials:
                self.trials[:] = there
                self._save()
            self.database.add(self.trials)

    def _read_folder(self) -> None:
        content = read_checksummed_json(self.path)
        if content.get("format") != FORMAT or not isinstance(content.get("trials"), list):
            raise RunFolderError(f"{self.path} is not a search that this version can read; choose another --out")
        words = "is another search", "use the same as before, or another --out"
        check_identity(self.path, self.identity(), content.get("identity", {}), *words)
        try:
            self.trials[:] = map(Trial.from_json, content["trials"])
            if [trial.number for trial in self.trials] != list(range(len(self.trials))):
                raise RunFolderError("its trials are not in order")
        except RunFolderError as error:
            raise RunFolderError(f"{self.path}: {error}; choose another --out") from error

    def search(self, count: int, on_trial: Callable[[Trial], None] = lambda trial: None) -> bool:
        """Search until there are `count` trials; return whether there are, False when the time was up before.

        Args:
            count: trials in all, those that were loaded among them.
            on_trial: called with each trial once it is on disk.
        """
        aim = self.objective
        defaults = aim.method.settings_class(**aim.fixed).model_dump()
        while len(self.trials) < count:
            if aim.time_is_up:
                return False
            settings = propose(self.space, defaults, aim.seed, self.trials)
            try:
                trial = aim.run(len(self.trials), settings, partial(falls_behind, self.trials))
            except TimeIsUp:
                return False
            self._add(trial, on_trial)
        return True

    def quick_search(self, budget: float, on_trial: Callable[[Trial], None] = lambda trial: None) -> bool:
        """Search the model's ladders by successive halving; return whether that came to its end within the budget.

        Args:
            budget: seconds of all trials together, those that were loaded among them; half of them at most go to the
                cheaper fits of the first round.
            on_trial: called with each trial once it is on disk.
        """
        spent = sum(trial.seconds for trial in self.trials)
        aim = replace(self.objective, deadline=time.monotonic() + budget - spent)
        half = time.monotonic() + budget / 2 - spent
        method, finished = aim.method, True
        defaults = method.settings_class(**aim.fixed).model_dump()

        def value_of(changes: dict[str, Any]) -> float | None:
            nonlocal finished
            settings = {name: changes.get(name, defaults[name]) for name in self.space}
            trial = next((trial for trial in self.trials if trial.settings == settings), None)
            if trial is None:
                short = method.fidelity in changes
                try:
                    if aim.time_is_up or (short and time.monotonic() >= half):
                        raise TimeIsUp
                    trial = aim.run(len(self.trials), settings, short=short)
                except TimeIsUp:
                    finished = False
                    return None
                self._add(trial, on_trial)
            return trial.value

        quick_search(method, aim.fixed, value_of)
        return finished

    def _add(self, trial: Trial, on_trial: Callable[[Trial], None]) -> None:
        self.trials.append(trial)
        self._save()
        shutil.rmtree(self.objective.folder / RUNNING, ignore_errors=True)
        if self.database is not None:
            self.database.add(self.trials)
        on_trial(trial)

    def _save(self) -> None:
        content = {
            "format": FORMAT,
            "identity": self.identity(),
            "data": self.objective.data.name,
            "metric": self.objective.metric,
            "versions": installed_versions(),
            "trials": [trial.to_json() for trial in self.trials],
        }
        write_bytes_atomic(self.path, checksummed_json(content))


@contextmanager
def open_study(objective: Objective, space: Space, storage: str | None = None) -> Iterator[Study]:
    """Yield the search in the objective's folder, new or as far as it came, with the folder held for this process.

    With the address of a `storage` the trials are in that database too.

    Raises:
        RunFolderError: another process works on the folder, or it holds another search or none of ours.
    """
    folder = objective.folder
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; --out needs a folder, choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / STUDY).exists():
        # Beside a search other people's files may stay; a folder with nothing but them is not ours.
        for entry in sorted(folder.iterdir()):
            if entry.name not in (LOCK, RUNNING) and not (entry.name.startswith(".") and entry.name.endswith(".tmp")):
                raise RunFolderError(f"{folder} holds other files ({entry.name}) and no search; choose another --out")
    with open(folder / LOCK, "wb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(f"another process searches in {folder}; wait for it, or use another --out") from None
        study = Study(objective, space, storage=storage)
        study.load()
        yield study
