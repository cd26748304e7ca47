"""`export_run`: a run folder in, a proven export out."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rankformer.errors import ConfigError
from rankformer.export.base import Format
from rankformer.export.contents import read_contents
from rankformer.export.faiss_index import FaissIndex
from rankformer.export.numpy_arrays import NumpyArrays
from rankformer.export.parquet import Parquet
from rankformer.export.pgvector import PgVector
from rankformer.export.publish import building, check_target, publish
from rankformer.export.self_test import SelfTest, self_test

FORMATS: dict[str, Callable[..., Format]] = {
    format.name: format for format in (Parquet, NumpyArrays, FaissIndex, PgVector)
}


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Attributes:
        card: what the vectors are.
        self_test: what was compared with the run, and found equal.
    """

    card: dict[str, Any]
    self_test: SelfTest

    def to_dict(self) -> dict[str, Any]:
        """Return the same as values that JSON can hold."""
        return {"card": self.card, "self_test": asdict(self.self_test)}


def make_format(name: str, **options: Any) -> Format:
    """Return a format by its name, or say which there are; an option that is None was not given."""
    if name not in FORMATS:
        raise ConfigError(f"cannot export to {name!r}; expected one of {', '.join(FORMATS)}")
    given = {option: value for option, value in options.items() if value is not None}
    if given and name != PgVector.name:
        raise ConfigError(f"--{next(iter(given))} is for --to {PgVector.name}; leave it out for {name}")
    return FORMATS[name](**given)


def export_run(run: Path, format: Format, out: Path | None, overwrite: bool = False) -> Exported:
    """Write the vectors of a run and return what was written, after it has passed its self-test.

    Until then everything stands in a temporary folder, so that nothing is left behind if it fails.

    Args:
        run: run folder.
        format: form of the export.
        out: folder or file to make; None for stdout, which gets its first byte after the self-test.
        overwrite: whether an older export may be replaced.

    Raises:
        UserError: the run, the format or the target cannot be used.
        RankformerError: the export failed its self-test.
    """
    if out is None and not format.single:
        raise ConfigError(f"--to {format.name} makes a folder, which cannot go to stdout; name one with --out")
    target = None if out is None else Path(out).resolve()
    if target is not None:
        check_target(target, format, overwrite)
    contents = read_contents(run)
    files = {} if format.single else {"files": list(format.files)}
    contents = replace(contents, card={**contents.card, "to": format.name, **files})
    parent, name = (Path(tempfile.gettempdir()), "export") if target is None else (target.parent, target.name)
    with building(parent, name) as folder:
        format.write(contents, folder)
        outcome = self_test(contents, format, folder)
        built = folder / format.files[0] if format.single else folder
        if target is None:
            _send_to_stdout(built)
        else:
            publish(built, target)
    return Exported(contents.card, outcome)


def _send_to_stdout(file: Path) -> None:
    with open(file, "rb") as stream:
        shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()
