"""Making an export appear whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankformer.errors import ConfigError
from rankformer.export.base import Target
from rankformer.export.contents import FORMAT
from rankformer.files import sync_folder

METADATA = "metadata.json"
METADATA_OF_VERSION_1 = "card.json"


def check_path(path: Path, target: Target, overwrite: bool) -> None:
    """Refuse a path that is taken; `overwrite` gives up an older file or export folder, and nothing else."""
    if not path.exists():
        return
    if not overwrite:
        raise ConfigError(f"{path} exists; use --overwrite to replace it, or another --out")
    if not (path.is_file() if target.single else path.is_dir()):
        needed = "a file" if target.single else "a folder"
        raise ConfigError(f"{path} is not {needed}, which --to {target.name} writes; choose another --out")
    if not target.single and not _holds_only_an_export(path):
        raise ConfigError(f"{path} holds other files than an export, which --overwrite would lose; choose another")


@contextmanager
def building(parent: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder inside a hidden temporary one in `parent`, which is removed in the end."""
    parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=parent))
    try:
        built = temporary / "export"  # with ordinary permissions, which the temporary folder does not have
        built.mkdir()
        yield built
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def publish(built: Path, path: Path) -> None:
    """Flush a file or folder made inside `building` to disk and rename it to `path`, replacing what is there."""
    for file in [*built.iterdir()] if built.is_dir() else [built]:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
    if built.is_dir():
        sync_folder(built)
        _replace_folder(built, path)
    else:
        os.replace(built, path)
    sync_folder(path.parent)


def _replace_folder(built: Path, path: Path) -> None:
    """Rename a folder to `path`; an older one is moved into the temporary folder, and back on failure."""
    aside = built.parent / "replaced"
    with suppress(FileNotFoundError):
        os.rename(path, aside)
    try:
        os.rename(built, path)
    except OSError:
        if aside.exists():
            os.rename(aside, path)
        raise


def _holds_only_an_export(folder: Path) -> bool:
    """Whether a folder is empty, or holds an export's metadata and nothing that they do not list."""
    names = {entry.name for entry in folder.iterdir()}
    if not names:
        return True
    file = METADATA if METADATA in names else METADATA_OF_VERSION_1
    try:
        metadata = json.loads((folder / file).read_bytes())
        return metadata["format"] == FORMAT and names <= set(metadata["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
