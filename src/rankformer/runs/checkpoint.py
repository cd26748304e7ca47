"""Checkpoints: the whole state of a training, readable at every instant and never half-written.

    checkpoint/
      epoch-00000120.safetensors    every tensor: parameters, optimiser, best parameters so far
      latest.json                   names that file with its SHA-256, and holds the numbers; renamed into place last

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
from rankformer.files import sha256_of, write_bytes_atomic
from rankformer.runs.checksums import checksummed_json, read_checksummed_json

LATEST = "latest.json"
REFIT = "refit"  # a folder inside that of the checkpoint: training log and checkpoint of the refit
_NAMES = r"latest\.json|epoch-\d{8}\.safetensors|log\.jsonl"
_OURS = re.compile(rf"{_NAMES}|\.({_NAMES})\..*\.tmp")


@dataclass(frozen=True)
class CheckpointStore:
    """Where one run keeps its latest checkpoint."""

    folder: Path  # created on the first save
    identity: dict[str, Any]  # what the run is (model, settings, data, seed); a checkpoint of another is refused

    def save(self, epoch: int, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write a checkpoint; the previous one is removed only after the new one counts."""
        target = self.folder / f"epoch-{epoch:08d}.safetensors"
        data = tensors_to_bytes({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        digest = hashlib.sha256(data).hexdigest()
        write_bytes_atomic(target, data)
        latest = {"file": target.name, "sha256": digest, "identity": self.identity, "numbers": numbers}
        write_bytes_atomic(self.folder / LATEST, checksummed_json(latest))
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
        latest = read_checksummed_json(pointer)
        absent = [part for part in ("file", "sha256", "identity", "numbers") if part not in latest]
        if absent:
            raise RunFolderError(f"{pointer} has no {absent[0]}; it is not a checkpoint, start again without --resume")
        check_identity(pointer, self.identity, latest["identity"])
        path = self.folder / str(latest["file"])
        if path.parent != self.folder or not path.is_file():
            raise RunFolderError(f"{path} is missing; the checkpoint cannot be resumed, start again without --resume")
        if sha256_of(path) != latest["sha256"]:
            raise RunFolderError(f"{path} is damaged (its SHA-256 differs); start again without --resume")
        try:
            return load_tensors(path.read_bytes()), latest["numbers"]
        except SafetensorError as error:
            raise RunFolderError(f"{path} is damaged ({error}); start again without --resume") from error


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
    pointer = folder / LATEST
    return int(read_checksummed_json(pointer)["numbers"]["epoch"]) if pointer.is_file() else None


def remove_checkpoint(folder: Path) -> None:
    """Remove the files of a checkpoint, and the folder when nothing else is in it; the pointer goes first."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for inner in (REFIT, "checkpoint"):
        remove_checkpoint(folder / inner)
    for path in sorted(folder.iterdir(), key=lambda path: path.name != LATEST):
        if _OURS.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
