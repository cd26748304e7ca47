"""`export_run`: a run folder in, a tested export out."""

import shutil
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rankformer.errors import ConfigError
from rankformer.export import TARGETS
from rankformer.export.base import Target
from rankformer.export.contents import read_contents
from rankformer.export.publish import METADATA, building, check_path, publish
from rankformer.export.self_test import SelfTest, self_test


class Exported(NamedTuple):
    """What was exported.

    Attributes:
        metadata: what the vectors are.
        self_test: what was compared with the run, and found equal.
    """

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
    with building(path.parent, path.name) as folder:
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
