"""`export_run`: a run folder in, a tested export out, which appears whole or not at all."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rankformer.errors import ConfigError
from rankformer.export import TARGETS
from rankformer.export.contents import FORMAT, read_contents
from rankformer.export.self_test import SelfTest, self_test
from rankformer.export.targets import Target
from rankformer.files import sync_folder

METADATA = "metadata.json"
METADATA_OF_VERSION_1 = "card.json"


class Exported(NamedTuple):
    """What was exported: what the vectors are, and what was compared with the run and found equal."""

    metadata: dict[str, Any]
    self_test: SelfTest


def target_class(name: str) -> type[Target]:
    """Return a target by its name, or say which there are."""
    if name not in TARGETS:
        raise ConfigError(f"cannot export to {name!r}; expected one of {', '.join(TARGETS)}")
    module, _, attribute = TARGETS[name].partition(":")
    found: type[Target] = getattr(import_module(module), attribute)
    return found


def make_target(name: str, **options: Any) -> Target:
    """Return a target with its options; one that is None was not given."""
    target = target_class(name)
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in target.options:
            owners = [other for other in TARGETS if option in target_class(other).options]
            raise ConfigError(f"--{option} is for --to {' or '.join(owners)}; leave it out for {name}")
    return target(**given)


def export_run(run: Path, target: Target, out: Path | None, overwrite: bool = False) -> Exported:
    """Write the vectors of a run and return what was written, after it has passed its self-test.

    Until then everything is in a temporary folder, so that nothing is left behind if it fails.

    Args:
        run: run folder.
        target: form of the export.
        out: folder or file to make; None for stdout, which gets its first byte after the self-test.
        overwrite: whether an older export may be replaced.

    Raises:
        UserError: the run, the target or the path cannot be used.
        RankformerError: the export failed its self-test.
    """
    if out is None and not target.single:
        raise ConfigError(f"--to {target.name} makes a folder, which cannot go to stdout; name one with --out")
    path = Path(tempfile.gettempdir(), "export") if out is None else Path(out).resolve()
    if out is not None:
        check_path(path, target, overwrite)
    contents = read_contents(run)
    files = {} if target.single else {"files": [*target.files, METADATA]}
    contents = replace(contents, metadata={**contents.metadata, "to": target.name, **files})
    with building(path) as folder:
        target.write(contents, folder)
        if not target.single:
            (folder / METADATA).write_text(contents.metadata_json(indent=2) + "\n", encoding="ascii")
        outcome = self_test(contents, target, folder)
        built = folder / target.files[0] if target.single else folder
        if out is not None:
            publish(built, path)
        else:
            with open(built, "rb") as stream:
                shutil.copyfileobj(stream, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    return Exported(contents.metadata, outcome)


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


@contextmanager
def building(path: Path) -> Iterator[Path]:
    """Yield an empty folder inside a hidden temporary one beside `path`, which is removed in the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{path.name}.", suffix=".tmp", dir=path.parent, ignore_cleanup_errors=True
    ) as temporary:
        built = Path(temporary, "export")  # with ordinary permissions, which the temporary folder does not have
        built.mkdir()
        yield built


def publish(built: Path, path: Path) -> None:
    """Flush a file or folder made inside `building` to disk and rename it to `path`, replacing what is there."""
    for file in [*built.iterdir()] if built.is_dir() else [built]:
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
    if not built.is_dir():
        os.replace(built, path)
    else:
        sync_folder(built)
        aside = built.parent / "replaced"
        with suppress(FileNotFoundError):
            os.rename(path, aside)
        try:
            os.rename(built, path)
        except OSError:
            if aside.exists():
                os.rename(aside, path)
            raise
    sync_folder(path.parent)
