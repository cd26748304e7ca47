"""`manifest.json`: what a run folder holds, with the checksum of every other file and of itself."""

from pathlib import Path
from typing import Any

from rankformer.errors import RunFolderError
from rankformer.runs.checksums import read_checksummed_json
from rankformer.runs.legacy import upgrade_manifest

FORMAT = "rankformer-run"
VERSION = 2
MANIFEST = "manifest.json"
TENSORS = "embeddings.safetensors"
FILES = (TENSORS, "users.parquet", "items.parquet", "history.parquet", "log.jsonl")
_PARTS: dict[str, type] = {"model": str, "seed": int} | dict.fromkeys(
    ("settings", "versions", "data", "metrics", "protocol", "scorer", "files"), dict
)


STAGED = ".staged"  # a whole new run, whose files are being moved to where the old ones are


def located(folder: Path, name: str) -> Path:
    """Return where a file of a run is: in the run that is being put in place of an older one, or in the folder."""
    staged = folder / STAGED / name
    return staged if staged.is_file() else folder / name


def is_run(folder: Path) -> bool:
    """Whether the folder holds a finished run."""
    return located(folder, MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the checked manifest of a run folder, without reading the other files.

    Raises:
        RunFolderError: there is no finished run, or its manifest is damaged or of an unknown version.
    """
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder; give the folder that `rankformer train --out` made")
    if not is_run(folder):
        unfinished = (folder / "checkpoint").is_dir()
        hint = "training has not finished, continue it with --resume" if unfinished else "it is not a run folder"
        raise RunFolderError(f"{folder} has no {MANIFEST}: {hint}")
    path = located(folder, MANIFEST)
    manifest = read_checksummed_json(path)
    if manifest.get("format") == FORMAT and manifest.get("version") == 1:
        manifest = upgrade_manifest(manifest)
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        found = f"{manifest.get('format')} version {manifest.get('version')}"
        raise RunFolderError(f"{path}: found {found}, this package reads {FORMAT} versions 1 and {VERSION}")
    for part, kind in _PARTS.items():
        if not isinstance(manifest.get(part), kind):
            raise RunFolderError(f"{path} does not say its {part}; it is not a run this package wrote")
    return manifest
