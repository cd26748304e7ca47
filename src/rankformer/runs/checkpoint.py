"""Checkpoints: the whole state of a training run, readable at every instant and never half-written.

    checkpoint/
      epoch-00000120.safetensors    every tensor: parameters, optimiser, best parameters so far
      latest.json                   names that file with its SHA-256, and holds the numbers; renamed into place last

A crash at any moment leaves `latest.json` pointing at a complete file. Nothing here can execute.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import Tensor

from rankformer.errors import RunFolderError
from rankformer.files import atomic_path, sealed_json, sha256_of, unseal_json, write_bytes_atomic


@dataclass(frozen=True)
class CheckpointStore:
    """Where one run keeps its latest checkpoint.

    Attributes:
        folder: created on the first save.
        identity: what the run is (model, settings, data, seed); a checkpoint of another identity is refused.
    """

    folder: Path
    identity: dict[str, Any]

    def save(self, epoch: int, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write a checkpoint; the previous one is removed only after the new one counts."""
        target = self.folder / f"epoch-{epoch:08d}.safetensors"
        with atomic_path(target) as temporary:
            save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary)
            digest = sha256_of(temporary)
        latest = {"file": target.name, "sha256": digest, "identity": self.identity, "numbers": numbers}
        write_bytes_atomic(self.folder / "latest.json", sealed_json(latest))
        for other in self.folder.iterdir():
            if other.name not in (target.name, "latest.json"):
                other.unlink(missing_ok=True)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the latest checkpoint's tensors and numbers, None when there is none yet.

        Raises:
            RunFolderError: the checkpoint is damaged, or belongs to a run with other settings or data.
        """
        pointer = self.folder / "latest.json"
        if not pointer.exists():
            return None
        latest = unseal_json(pointer)
        absent = [part for part in ("file", "sha256", "identity", "numbers") if part not in latest]
        if absent:
            raise RunFolderError(f"{pointer} has no {absent[0]}; it is not a checkpoint, start again without --resume")
        self._check_identity(pointer, latest["identity"])
        path = self.folder / str(latest["file"])
        if path.parent != self.folder or not path.is_file():
            raise RunFolderError(f"{path} is missing; the checkpoint cannot be resumed, start again without --resume")
        if sha256_of(path) != latest["sha256"]:
            raise RunFolderError(f"{path} is damaged (its SHA-256 differs); start again without --resume")
        try:
            return load_tensors(path.read_bytes()), latest["numbers"]
        except SafetensorError as error:
            raise RunFolderError(f"{path} is damaged ({error}); start again without --resume") from error

    def remove(self) -> None:
        """Delete the checkpoint folder; called when the finished run is on disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _check_identity(self, pointer: Path, found: dict[str, Any]) -> None:
        # Compared as JSON, since that is what a tuple becomes on disk.
        wanted = json.loads(json.dumps(self.identity))
        for key in {**wanted, **found}:
            if wanted.get(key) != found.get(key):
                raise RunFolderError(
                    f"{pointer} belongs to another run: its {key} is {_short(found.get(key))}, "
                    f"this one's is {_short(wanted.get(key))}; resume with the same, or choose another folder"
                )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
