"""Checkpoints: the whole state of a training, readable at every instant and never half-written.

    checkpoint/
      epoch-00000120.safetensors    every tensor: parameters, optimiser, best parameters so far
      latest.json                   names that file with its SHA-256, and holds the numbers; renamed into place last;
                                    from the start of the training, before there is such a file

A crash at any moment leaves `latest.json` pointing at a complete file. Nothing here can execute.
"""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from rankformer.errors import RunFolderError
from rankformer.files import LOCK, sha256_of, write_bytes_atomic
from rankformer.runs.checksums import checksummed_json, read_checksummed_json
from rankformer.runs.training_log import LOG

LATEST = "latest.json"
CHECKPOINT = "checkpoint"  # the folder of a training's checkpoint, in that of its run
REFIT = "refit"  # a folder inside that of the checkpoint: training log and checkpoint of the refit
_NAMES = r"latest\.json|epoch-\d{8}\.safetensors"
_OURS = re.compile(rf"{_NAMES}|\.({_NAMES})\..*\.tmp")
_OF_REFIT = re.compile(rf"{re.escape(LOCK)}|{re.escape(LOG)}|\.{re.escape(LOG)}\..*\.tmp")


@dataclass(frozen=True)
class CheckpointStore:
    """Where one run keeps its latest checkpoint."""

    folder: Path
    identity: dict[str, Any]  # what the run is (model, settings, data, seed); a checkpoint of another is refused

    def begin(self) -> None:
        """Mark the folder as that of this training, before anything else is written; a checkpoint in it stays."""
        if not (self.folder / LATEST).exists():
            start = {"epoch": 0, "log_events": 0}
            self._write_index({"file": None, "sha256": None, "identity": self.identity, "numbers": start})

    def save(self, epoch: int, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write a checkpoint; the previous one is removed only after the new one counts."""
        target = self.folder / f"epoch-{epoch:08d}.safetensors"
        while target.exists():  # saved twice in one epoch: what the index names is never written over
            epoch += 1
            target = self.folder / f"epoch-{epoch:08d}.safetensors"
        data = tensors_to_bytes({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        digest = hashlib.sha256(data).hexdigest()
        write_bytes_atomic(target, data)
        self._write_index({"file": target.name, "sha256": digest, "identity": self.identity, "numbers": numbers})
        for other in self.folder.iterdir():
            if other.name not in (target.name, LATEST) and _OURS.fullmatch(other.name):
                other.unlink(missing_ok=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the latest checkpoint's tensors and numbers, None when there is none yet.

        Raises:
            RunFolderError: the checkpoint is damaged, or belongs to a run with other settings or data.
        """
        pointer = self.folder / LATEST
        if not pointer.exists():
            return None
        latest = _read_index(pointer)
        check_identity(pointer, self.identity, latest["identity"])
        if not _has_state(latest):
            return None
        path = self.folder / str(latest["file"])
        if path.parent != self.folder or not path.is_file():
            raise RunFolderError(f"{path} is missing; the checkpoint cannot be resumed, start again without --resume")
        if sha256_of(path) != latest["sha256"]:
            raise RunFolderError(f"{path} is damaged (its SHA-256 differs); start again without --resume")
        try:
            return load_tensors(path.read_bytes()), latest["numbers"]
        except SafetensorError as error:
            raise RunFolderError(f"{path} is damaged ({error}); start again without --resume") from error

    def _write_index(self, latest: dict[str, Any]) -> None:
        write_bytes_atomic(self.folder / LATEST, checksummed_json(latest))


def _read_index(pointer: Path) -> dict[str, Any]:
    latest = read_checksummed_json(pointer)
    kinds: dict[str, Any] = {"file": object, "sha256": object, "identity": dict, "numbers": dict}
    wrong = [part for part, kind in kinds.items() if part not in latest or not isinstance(latest[part], kind)]
    if wrong:
        raise RunFolderError(f"{pointer} has no {wrong[0]}; it is not a checkpoint, start again without --resume")
    return latest


def _has_state(latest: dict[str, Any]) -> bool:
    return latest["file"] is not None or latest["sha256"] is not None


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one of a training: its index is valid, or there is nothing in it but our temporaries.

    Raises:
        RunFolderError: there is an index, and it is not valid.
    """
    if not folder.is_dir() or folder.is_symlink():
        return False
    if (folder / LATEST).exists():
        return bool(_read_index(folder / LATEST))
    return all(_OURS.fullmatch(path.name) and path.name.startswith(".") for path in folder.iterdir())


def check_identity(path: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Refuse to continue a run whose identity, found in the file `path`, is not the wanted one."""
    wanted = json.loads(json.dumps(wanted))  # compared as JSON, since that is what a tuple becomes on disk
    for key in {**wanted, **found}:
        if wanted.get(key) != found.get(key):
            raise RunFolderError(
                f"{path} belongs to another run: its {key} is {_short(found.get(key))}, "
                f"this one's is {_short(wanted.get(key))}; resume with the same, or choose another folder"
            )


def checkpoint_epoch(folder: Path) -> int | None:
    """Return the epoch that a training can be resumed from, None without a checkpoint in the folder."""
    latest = _read_index(folder / LATEST) if (folder / LATEST).is_file() else None
    return int(latest["numbers"]["epoch"]) if latest is not None and _has_state(latest) else None


def remove_checkpoint(folder: Path) -> None:
    """Remove the files of a checkpoint, and the folder when nothing else is in it; those of the refit go first.

    The index goes last: without it, what a kill leaves could not be told from the files of someone else.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    remove_checkpoint(folder / REFIT / CHECKPOINT)
    _remove(folder / REFIT, _OF_REFIT)
    _remove(folder, _OURS)


def _remove(folder: Path, ours: re.Pattern[str]) -> None:
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in sorted(folder.iterdir(), key=lambda path: path.name == LATEST):
        if ours.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
