"""Checkpoints: the whole state of a training, readable at every instant and never half-written.

    checkpoint/
      epoch-00000120.safetensors    every tensor: parameters, optimiser, best parameters so far
      latest.json                   names that file with its SHA-256, and holds the numbers; renamed into place last;
                                    from the start of the training, before there is such a file

A crash at any moment leaves `latest.json` pointing at a complete file. Nothing here can execute.

Of several ranks each writes the rows of its users and of the items it owns to a file of its own, such as
epoch-00000120-00001-of-00004.safetensors; once all are there the first rank writes `latest.json`, which lists them
under `shards` with their SHA-256 and their rows. Any number of ranks can read them: each takes the rows it needs.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from rankformer.errors import RunFolderError
from rankformer.files import LOCK, sha256_of, write_bytes_atomic
from rankformer.graph.collectives import ALONE, Ranks
from rankformer.runs.checksums import checksummed_json, read_checksummed_json
from rankformer.runs.training_log import LOG

LATEST = "latest.json"
CHECKPOINT = "checkpoint"  # the folder of a training's checkpoint, in that of its run
REFIT = "refit"  # a folder inside that of the checkpoint: training log and checkpoint of the refit
_SHARD = r"epoch-\d{8}(-\d{5}-of-\d{5})?\.safetensors"
_NAMES = rf"latest\.json|{_SHARD}"
_OURS = re.compile(rf"{_NAMES}|\.({_NAMES})\..*\.tmp")
_OF_REFIT = re.compile(rf"{re.escape(LOCK)}|{re.escape(LOG)}|\.{re.escape(LOG)}\..*\.tmp")


Span = tuple[int, int]


@dataclass(frozen=True)
class CheckpointStore:
    """Where one run keeps its latest checkpoint."""

    folder: Path
    identity: dict[str, Any]  # what the run is (model, settings, data, seed); a checkpoint of another is refused
    ranks: Ranks = ALONE
    rows: tuple[Span, Span] | None = None  # the users and the items whose rows this rank keeps; None for all
    sizes: tuple[int, int] = (0, 0)  # users and items of all ranks

    def begin(self) -> None:
        """Mark the folder as that of this training, before anything else is written; a checkpoint in it stays."""
        if not (self.folder / LATEST).exists() and self.ranks.rank == 0:
            start = {"epoch": 0, "log_events": 0}
            self._write_index({"file": None, "sha256": None, "identity": self.identity, "numbers": start})

    def save(self, epoch: int, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write a checkpoint; the previous one is removed only after the new one counts."""
        if not self.ranks.alone:
            self._save_shards(epoch, tensors, numbers)
            return
        target = self.folder / f"epoch-{epoch:08d}.safetensors"
        while target.exists():  # saved twice in one epoch: what the index names is never written over
            epoch += 1
            target = self.folder / f"epoch-{epoch:08d}.safetensors"
        data = tensors_to_bytes({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
        digest = hashlib.sha256(data).hexdigest()
        write_bytes_atomic(target, data)
        self._write_index({"file": target.name, "sha256": digest, "identity": self.identity, "numbers": numbers})
        self._remove_others({target.name})

    def _save_shards(self, epoch: int, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Write this rank's shard; the first rank writes the index when all ranks have."""
        assert self.rows is not None
        ranks, kept = self.ranks, {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        before = str(_read_index(self.folder / LATEST)["file"]) if ranks.rank == 0 else ""
        number = ranks.agreed(max(epoch, int(before[6:14]) + 1 if before.startswith("epoch-") else 0))
        name = f"epoch-{int(number):08d}-{ranks.rank:05d}-of-{ranks.size:05d}.safetensors"
        data = tensors_to_bytes(kept)
        with ranks.together():
            write_bytes_atomic(self.folder / name, data)
        digests = ranks.joined(np.frombuffer(hashlib.sha256(data).digest(), np.uint8)).reshape(ranks.size, 32)
        spans = ranks.joined(np.array([self.rows], np.int64))  # (P, 2, 2)
        if ranks.rank == 0:
            names = [name.replace("-00000-of-", f"-{rank:05d}-of-") for rank in range(ranks.size)]
            shards = [
                {"file": file, "sha256": digest.tobytes().hex(), "users": users.tolist(), "items": items.tolist()}
                for file, digest, (users, items) in zip(names, digests, spans, strict=True)
            ]
            first = {"file": shards[0]["file"], "sha256": shards[0]["sha256"], "shards": shards}
            self._write_index({**first, "identity": self.identity, "numbers": numbers})
            self._remove_others(set(names))

    def _remove_others(self, names: set[str]) -> None:
        for other in self.folder.iterdir():
            if other.name not in (*names, LATEST) and _OURS.fullmatch(other.name):
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
        if "shards" in latest or self.rows is not None:
            return self._load_shards(latest), latest["numbers"]
        with self._checked(latest) as path:
            return load_tensors(path.read_bytes()), latest["numbers"]

    def _load_shards(self, latest: dict[str, Any]) -> dict[str, Tensor]:
        """Return this rank's rows of every tensor, out of a checkpoint of any number of ranks."""
        whole = [{**latest, "users": [0, self.sizes[0]], "items": [0, self.sizes[1]]}]  # one rank's file has all rows
        wanted = self.rows or ((0, self.sizes[0]), (0, self.sizes[1]))
        found = dict[str, tuple[list[Tensor], list[Tensor]]]()  # of each tensor, parts of the users and of the items
        for shard in latest.get("shards", whole):
            spans = [(shard[side], wanted[number]) for number, side in enumerate(("users", "items"))]
            if found and all(max(one[0], other[0]) >= min(one[1], other[1]) for one, other in spans):
                continue  # has no row of this rank
            with self._checked(shard) as path, safe_open(path, "pt") as file:
                at = 0  # a file holds the rows of its users, then those of its items
                for number, side in enumerate(("users", "items")):
                    first, last = shard[side]
                    low, high = max(first, wanted[number][0]), min(last, wanted[number][1])
                    for name in file.keys():  # noqa: SIM118
                        stored, parts = file.get_slice(name), found.setdefault(name, ([], []))
                        if not stored.get_shape():
                            parts[0][:] = [file.get_tensor(name)]
                        elif low < high:
                            parts[number].append(stored[at + low - first : at + high - first])
                    at += last - first
        return {
            name: users[0] if not users[0].ndim else torch.cat([*users, *items])
            for name, (users, items) in found.items()
        }

    @contextmanager
    def _checked(self, entry: dict[str, Any]) -> Iterator[Path]:
        """Yield the path of a file that the index names, once its bytes are what they were."""
        path = self.folder / str(entry["file"])
        if path.parent != self.folder or not path.is_file():
            raise RunFolderError(f"{path} is missing; the checkpoint cannot be resumed, start again without --resume")
        if sha256_of(path) != entry["sha256"]:
            raise RunFolderError(f"{path} is damaged (its SHA-256 differs); start again without --resume")
        try:
            yield path
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
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


def check_identity(
    path: Path,
    wanted: dict[str, Any],
    found: dict[str, Any],
    problem: str = "belongs to another run",
    advice: str = "resume with the same, or choose another folder",
) -> None:
    """Refuse to continue a run or search whose identity, found in the file `path`, is not the wanted one."""
    wanted = json.loads(json.dumps(wanted))  # compared as JSON, since that is what a tuple becomes on disk
    for key in {**wanted, **found}:
        theirs, ours = found.get(key), wanted.get(key)
        if theirs == ours:
            continue
        if isinstance(theirs, dict) and isinstance(ours, dict):  # of which only what differs is shown
            names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
            theirs, ours = ({name: each[name] for name in names if name in each} for each in (theirs, ours))
        raise RunFolderError(f"{path} {problem}: its {key} is {_short(theirs)}, this one's is {_short(ours)}; {advice}")


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
