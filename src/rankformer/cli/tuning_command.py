"""The command lines that a search notes beside its result, so that it can be repeated and used."""

import shlex
from pathlib import Path
from typing import Any

import typer

_NOT_PART_OF_A_SEARCH = ("data", "model", "out", "timeout", "device", "threads", "json")


def search_command(context: typer.Context, model: str) -> str:
    """Return the command that does the running search again, with the flags that were given."""
    words = ["tune", context.params["data"], "--model", model]
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name not in _NOT_PART_OF_A_SEARCH and value is not None:
            words += _words(option, value)
    return _line(words)


def training_command(data: str, folder: Path, configuration: str) -> str:
    """Return the command that trains with the configuration in the folder of a search."""
    return _line(["train", data, "--out", str(folder / "run"), "--config", str(folder / configuration)])


def _words(option: Any, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [(option.opts if value else option.secondary_opts)[0]]
    values = value if isinstance(value, list | tuple) else [value]
    return [word for each in values for word in (option.opts[0], str(each))]


def _line(words: list[str]) -> str:
    # A line end inside a name would end the comment that the line stands in.
    return " ".join(shlex.quote(word) for word in ["rankformer", *words]).replace("\n", " ")
