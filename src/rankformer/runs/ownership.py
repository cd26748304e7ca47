"""What in a folder is ours: the files that a valid manifest or checkpoint lists, and our temporaries; nothing else.

A run that replaces another is written whole to `.staged.tmp`, which is renamed to `.staged`: from then on the new run
counts and the old one does not, wherever the process is killed. Its files are then moved to their places.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from rankformer.errors import RunFolderError
from rankformer.files import LOCK, sync_folder
from rankformer.runs.checkpoint import CHECKPOINT, REFIT, is_checkpoint, remove_checkpoint
from rankformer.runs.manifest import EVALUATION, FILES, MANIFEST, STAGED, is_run, read_manifest
from rankformer.runs.model_card import CARD, write_card
from rankformer.runs.training_log import LOG, is_training_log

TRAINING = ".training"  # checkpoint and log of a training whose run will replace the one in the folder
_RUN = (*FILES, EVALUATION, MANIFEST)
_TEMPORARY = re.compile(rf"\.({'|'.join(map(re.escape, (*_RUN, CARD)))})\..*\.tmp")


def check_ours(folder: Path) -> None:
    """Refuse a folder in which something that is not ours has a name that we would write to or remove.

    Raises:
        RunFolderError: the message names the file.
    """
    for name in (*_RUN, CHECKPOINT, f"{CHECKPOINT}/{REFIT}", TRAINING, STAGED, f"{STAGED}.tmp"):
        if (folder / name).is_symlink():
            raise RunFolderError(f"{folder / name} is a symbolic link; remove it, or choose another folder")
    if (folder / CHECKPOINT).exists() and not is_checkpoint(folder / CHECKPOINT):
        raise _foreign(folder / CHECKPOINT, "a checkpoint of a training")
    if (folder / CHECKPOINT / REFIT).exists():
        check_ours(folder / CHECKPOINT / REFIT)
    if is_run(folder):
        listed = read_manifest(folder)["files"]
        if EVALUATION not in listed and (folder / EVALUATION).exists() and not (folder / STAGED).exists():
            raise _foreign(folder / EVALUATION, f"a file of the run, whose {MANIFEST} does not list it")
        return
    for name in _RUN:
        if (folder / name).exists() and not (name == LOG and is_training_log(folder / LOG)):
            raise _foreign(folder / name, f"a file of a run, for want of a {MANIFEST} that lists it")
    if (folder / TRAINING).exists():
        check_ours(folder / TRAINING)


def other_files(folder: Path) -> list[str]:
    """Return the names in a folder that are not ours, in order."""
    ours = {*_RUN, CHECKPOINT, TRAINING, STAGED, f"{STAGED}.tmp", LOCK}
    names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if name not in ours and not _TEMPORARY.fullmatch(name)]


def put_in_place(folder: Path) -> None:
    """Move the files of a staged run to their places, the manifest last, and write its model card."""
    staged = folder / STAGED
    if not staged.is_dir():
        return
    if (staged / MANIFEST).is_file() and EVALUATION not in read_manifest(folder)["files"]:
        (folder / EVALUATION).unlink(missing_ok=True)  # of the older run
    for name in _RUN:
        with suppress(FileNotFoundError):
            os.replace(staged / name, folder / name)
    sync_folder(folder)
    with suppress(OSError):
        staged.rmdir()
    write_card(folder, read_manifest(folder))


def sweep(folder: Path) -> None:
    """Finish or remove what killed processes left in a folder that is ours and locked."""
    put_in_place(folder)
    remove_files(folder / f"{STAGED}.tmp")
    _remove_temporaries(folder)
    if (folder / MANIFEST).is_file() and is_checkpoint(folder / CHECKPOINT):
        remove_checkpoint(folder / CHECKPOINT)  # of the training that made this run


def remove_files(folder: Path) -> None:
    """Remove the files of a run or training from a folder of ours, and the folder when nothing else is in it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for name in (MANIFEST, *FILES, EVALUATION):
        (folder / name).unlink(missing_ok=True)
    _remove_temporaries(folder)
    remove_checkpoint(folder / CHECKPOINT)
    with suppress(OSError):
        folder.rmdir()


def _remove_temporaries(folder: Path) -> None:
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _foreign(path: Path, wanted: str) -> RunFolderError:
    return RunFolderError(f"{path} is not {wanted}; move it elsewhere, or choose another folder")
