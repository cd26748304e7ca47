"""The command lines that a search notes beside its result, so that it can be repeated and used."""

import inspect
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rankformer.cli.data_options import data_options

if TYPE_CHECKING:
    from rankformer.tuning.report import Commands


def commands_of(
    model: str, folder: Path, data: str, options: Mapping[str, Any], search: Mapping[str, Any]
) -> "Commands":
    """Return how to do a search again and how to train with what it found.

    Args:
        model: name of the method.
        folder: of the search.
        data: DATA.
        options: how DATA is read; the configuration holds them too, so training does not repeat them.
        search: the other flags, by name; None and empty ones were not given.
    """
    from rankformer.tuning.report import CONFIG, Commands

    flags = [word for name, value in search.items() for word in _words(f"--{name}", value)]
    reading = [word for name, value in options.items() for word in _words(_flag_of(name), value)]
    training = ["train", data, "--out", str(folder / "run"), "--config", str(folder / CONFIG)]
    return Commands(_line(["tune", data, "--model", model, *flags, *reading]), _line(training))


def _flag_of(option: str) -> str:
    """Return the flag that sets a data option, such as --user-column for `user`."""
    declared = get_args(inspect.signature(data_options).parameters[option].annotation)[1]
    # typer takes the first name for a default until it has seen the annotation.
    return str(next(iter(declared.param_decls or [declared.default])))


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        yes, _, no = flag.partition("/")
        return [yes if value else no]
    if isinstance(value, list):
        return [word for each in value for word in (flag, str(each))]
    if isinstance(value, tuple):
        return [flag, ",".join(map(str, value))]
    return [] if value is None else [flag, str(value)]


def _line(words: list[str]) -> str:
    # A line end inside a name would end the comment that the line stands in.
    return " ".join(shlex.quote(word) for word in ["rankformer", *words]).replace("\n", " ")
