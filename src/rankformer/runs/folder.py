"""The folder a training writes to: what is in it already, and whether it may be used."""

from enum import Enum
from pathlib import Path

from rankformer.errors import RunFolderError


class State(Enum):
    """What a folder holds before a training starts."""

    FREE = "nothing"
    STARTED = "a training that has not finished"
    FINISHED = "a finished run"


def state_of(folder: Path) -> State:
    """Return what the folder holds, or refuse one with files that are not ours."""
    from rankformer.runs.run import FILES, is_run

    if not folder.exists():
        return State.FREE
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; --out needs a folder, choose another name")
    if is_run(folder):
        return State.FINISHED
    found = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in found if name not in (*FILES, "checkpoint") and not _is_temporary(name)]
    if (folder / "checkpoint" / "latest.json").is_file():
        return State.STARTED
    if foreign:
        raise RunFolderError(f"{folder} holds other files ({foreign[0]}) and no run; choose another --out")
    return State.STARTED if found else State.FREE


def check_flags(folder: Path, state: State, resume: bool, overwrite: bool) -> None:
    """Refuse to touch a folder that is in use, unless a flag says what to do with it."""
    if state is State.FINISHED and not (resume or overwrite):
        raise RunFolderError(f"{folder} holds a finished run; use --overwrite to replace it, or another --out")
    if state is State.STARTED and not (resume or overwrite):
        raise RunFolderError(
            f"{folder} holds a training that has not finished; "
            "use --resume to go on with it, --overwrite to start again, or another --out"
        )


def clear(folder: Path) -> None:
    """Remove the files of a run and its checkpoint, and nothing else; the manifest goes first."""
    from rankformer.runs.run import FILES, MANIFEST

    for name in (MANIFEST, *FILES):
        (folder / name).unlink(missing_ok=True)
    remove_checkpoint(folder)


def remove_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a training."""
    from rankformer.runs.checkpoint import CheckpointStore

    CheckpointStore(folder / "checkpoint", {}).remove()


def last_checkpoint(folder: Path) -> int | None:
    """Return the epoch that a training can be resumed from, None without a checkpoint."""
    from rankformer.files import unseal_json

    pointer = folder / "checkpoint" / "latest.json"
    return int(unseal_json(pointer)["numbers"]["epoch"]) if pointer.is_file() else None


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")
