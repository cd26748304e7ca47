"""`manifest.json`: what a run folder holds, with the checksum of every other file and of itself."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from rankformer.errors import RunFolderError
from rankformer.runs.checksums import read_checksummed_json
from rankformer.runs.legacy import upgrade_manifest

FORMAT = "rankformer-run"
VERSION = 2
MANIFEST = "manifest.json"
TENSORS = "embeddings.safetensors"
FILES = (TENSORS, "users.parquet", "items.parquet", "history.parquet", "log.jsonl")
EVALUATION = "evaluation.parquet"  # only where something was evaluated
STAGED = ".staged"  # a whole new run, whose files are being moved to where the old ones are
MOST = 1e38  # magnitude of numbers, about what a 32-bit float can hold


_Text = Annotated[str, Field(max_length=1000)]
_Number = Annotated[float, Field(ge=-MOST, le=MOST)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]


def _bounded(value: Any, depth: int = 0) -> Any:
    """Return a JSON value after refusing what nobody means: numbers, strings and nesting beyond all bounds."""
    if depth > 8:
        raise ValueError("nested more than 8 levels deep")
    if isinstance(value, int | float) and not -MOST <= value <= MOST:
        raise ValueError(f"a number beyond {MOST:g}")
    if isinstance(value, str) and len(value) > 10_000:
        raise ValueError("a string of more than 10,000 characters")
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _bounded(entry, depth + 1)
    return value


_Record = Annotated[dict[_Text, Any], AfterValidator(_bounded)]


class FileEntry(BaseModel, strict=True):
    """What the manifest says of another file."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: _Count


class RefitEntry(BaseModel, strict=True, extra="allow"):
    """What the manifest says of a refit; the rest is what validation chose, as the method says it."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_bounded)]]
    interactions: _Count
    seconds: _Number = 0.0
    epochs: _Count | None = None


class UpdateEntry(BaseModel, strict=True, extra="allow"):
    """What the manifest says of an update."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_bounded)]]
    parent: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    interactions: _Count
    users: _Count
    items: _Count
    seconds: _Number
    journal: dict[_Text, _Count] = {}


class SourceEntry(BaseModel, strict=True, extra="allow"):
    """How the data of a run was read; `DataSource` checks the rest when it is read again."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_bounded)]]
    event_weights: dict[_Text, _Number] | None = None


class DataEntry(BaseModel, strict=True, extra="allow"):
    """What the manifest says of the data."""

    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_bounded)]]
    source: SourceEntry | _Text | None = None  # a run that was saved by hand may say it in a word
    fingerprint: _Text = ""


class Manifest(BaseModel, strict=True):
    """The one schema of a manifest; what it does not name is ignored."""

    model: _Text
    seed: _Count
    created: _Text = ""
    settings: _Record
    versions: dict[_Text, _Text]
    data: DataEntry
    metrics: dict[_Text, _Number | None]
    warm_metrics: dict[_Text, _Number | None] = {}
    refit: RefitEntry | None = None
    update: UpdateEntry | None = None
    protocol: _Record
    scorer: _Record
    files: dict[_Text, FileEntry]


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
        try:
            manifest = upgrade_manifest(manifest)
        except (TypeError, ValueError, OverflowError) as error:
            raise RunFolderError(f"{path} is not a manifest of version 1: {error}") from error
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        found = f"{manifest.get('format')} version {manifest.get('version')}"
        raise RunFolderError(f"{path}: found {found}, this package reads {FORMAT} versions 1 and {VERSION}")
    try:
        Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:80]
        reason = f"{where}: {first['msg']}"
        raise RunFolderError(f"{path} is not of a run this package wrote ({reason})") from None
    return manifest
