"""The folder a training writes to: what is in it already, and whether it may be used."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rankformer.data.parts import Parts
from rankformer.errors import RunFolderError
from rankformer.files import LOCK, locked
from rankformer.runs.checkpoint import CHECKPOINT, REFIT, check_identity, checkpoint_epoch
from rankformer.runs.fitting import Learner, counted, identity_of
from rankformer.runs.manifest import MANIFEST, is_run, read_manifest
from rankformer.runs.ownership import TRAINING, check_ours, other_files, remove_files, sweep


class State(Enum):
    """What a folder holds before a training starts."""

    EMPTY = "nothing"
    UNFINISHED = "a training that has not finished"
    FINISHED = "a finished run"


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run, a training that has not finished, or nothing yet."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """Where the checkpoint of a training is."""
        return self.training / CHECKPOINT

    @property
    def training(self) -> Path:
        """Where a training writes: beside a finished run, which stays until the new one is whole, or here."""
        return self.path / TRAINING if is_run(self.path) else self.path

    def lock(self) -> AbstractContextManager[None]:
        """Return a context in which no one else writes to the folder."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; --out needs a folder, choose another name")
        return locked(self.path)

    @property
    def state(self) -> State:
        """What the folder holds; one with files that are not ours is rejected."""
        if not self.path.exists():
            return State.EMPTY
        if not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file; --out needs a folder, choose another name")
        check_ours(self.path)
        if is_run(self.path):
            return State.FINISHED
        foreign = other_files(self.path)
        if foreign and not self.checkpoint.exists():
            raise RunFolderError(f"{self.path} holds other files ({foreign[0]}) and no run; choose another --out")
        return State.UNFINISHED if any(path.name != LOCK for path in self.path.iterdir()) else State.EMPTY

    def claim(self, *, resume: bool, overwrite: bool) -> State:
        """Return the state of the folder, or refuse one that is in use unless a flag says what to do with it."""
        state = self.state
        if resume or overwrite:
            sweep(self.path)
        if state is State.FINISHED and self.training.exists() and not overwrite:
            state = State.UNFINISHED  # of the run that is to replace it
        if state is State.FINISHED and not (resume or overwrite):
            raise RunFolderError(f"{self.path} holds a finished run; use --overwrite to replace it, or another --out")
        if state is State.UNFINISHED and not (resume or overwrite):
            raise RunFolderError(
                f"{self.path} holds a training that has not finished; "
                "use --resume to continue it, --overwrite to start again, or another --out"
            )
        return state

    def check_finished(self, model: Learner, parts: Parts, refit: bool | None = None) -> None:
        """Refuse to take a finished run for the requested one: other model, settings, seed, data or refit if given."""
        manifest = read_manifest(self.path)
        wanted, found = identity_of(model), {name: manifest[name] for name in ("model", "settings", "seed")}
        if found["model"] == model.name:  # a run of an older version does not say what was no setting then
            found["settings"] = type(model.settings)(**found["settings"]).hyperparameters()
            for name in model.searched:  # the run has what its fit chose
                wanted["settings"][name] = found["settings"][name]
        known = {"fingerprint": parts.fingerprint, "train_fingerprint": counted(model, parts.train).fingerprint}
        said = next((key for key in known if key in manifest["data"]), None)
        if said is not None:
            found["data"], wanted["data"] = manifest["data"][said], known[said]
        if refit is not None:
            wanted["refit"], found["refit"] = refit, "refit" in manifest
        check_identity(self.path / MANIFEST, wanted, found)

    def clear(self) -> None:
        """Remove a training that has not finished; a run stays until the next is whole."""
        remove_files(self.training)

    def checkpoint_epoch(self) -> int | None:
        """Return the epoch that the training can be resumed from, None without a checkpoint."""
        return checkpoint_epoch(self.checkpoint)

    @property
    def is_refitting(self) -> bool:
        """Whether the training stopped during its refit."""
        return (self.checkpoint / REFIT).is_dir()
