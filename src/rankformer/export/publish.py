"""Making an export appear whole or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankformer.errors import ConfigError
from rankformer.export.base import CARD, Format
from rankformer.export.contents import FORMAT
from rankformer.files import sync_folder


def check_target(target: Path, format: Format, overwrite: bool) -> None:
    """Refuse a place that is taken; `overwrite` gives up an older file or export folder, and nothing else."""
    if not target.exists():
        return
    if not overwrite:
        raise ConfigError(f"{target} exists; use --overwrite to replace it, or another --out")
    if not (target.is_file() if format.single else target.is_dir()):
        needed = "a file" if format.single else "a folder"
        raise ConfigError(f"{target} is not {needed}, which --to {format.name} writes; choose another --out")
    if not format.single and not _holds_only_an_export(target):
        raise ConfigError(f"{target} holds other files than an export, which --overwrite would lose; choose another")


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


def publish(built: Path, target: Path) -> None:
    """Flush a file or folder made inside `building` to disk and rename it to `target`, replacing what is there."""
    for path in [*built.iterdir()] if built.is_dir() else [built]:
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
    if built.is_dir():
        sync_folder(built)
        _replace_folder(built, target)
    else:
        os.replace(built, target)
    sync_folder(target.parent)


def _replace_folder(built: Path, target: Path) -> None:
    """Rename a folder to `target`; an older one steps aside into the temporary folder, and comes back on failure."""
    aside = built.parent / "replaced"
    with suppress(FileNotFoundError):
        os.rename(target, aside)
    try:
        os.rename(built, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise


def _holds_only_an_export(folder: Path) -> bool:
    """Whether a folder is empty, or holds an export's card and nothing that the card does not list."""
    names = {entry.name for entry in folder.iterdir()}
    if not names:
        return True
    try:
        card = json.loads((folder / CARD).read_bytes())
        return card["format"] == FORMAT and names <= set(card["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
