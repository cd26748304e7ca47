"""The configuration file of a run: what to train, as TOML, read and written by the same code.

model = "rankformer"
seed = 0                 # optional
[settings]               # hyperparameters of the model; "none" stands for no value
num_layers = 3
[data]                   # optional: how to read DATA, the settings of `DataSource`
k_core = 5
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from rankformer.errors import ConfigError
from rankformer.files import write_bytes_atomic
from rankformer.settings import ModelSettings

DEFAULT_MODEL = "blend"
_KEYS = {"model": str, "seed": int, "settings": dict, "data": dict}
_WORDS = {str: "a string", int: "an integer", dict: "a table"}


def read_configuration(path: Path | None) -> dict[str, Any]:
    """Return the content of a configuration file, empty without one; anything unknown in it is rejected."""
    if path is None:
        return {}
    content = read_toml(path)
    for key, value in content.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}; expected {', '.join(_KEYS)}")
        if type(value) is not _KEYS[key]:
            raise ConfigError(f"{path}: {key} is {value!r}; expected {_WORDS[_KEYS[key]]}")
    _check_data_table(path, content.get("data", {}))
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also what is no UTF-8, too long a number, too deep
        raise ConfigError(f"{path} is not TOML: {error}") from error


def write_configuration(
    path: Path, model: str, settings: Mapping[str, Any], *, seed: int | None = None, comment: str = ""
) -> None:
    """Write a configuration file, atomically, that `read_configuration` gives back, below lines of comment."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines.append(f"model = {toml_value(model)}")
    lines += [] if seed is None else [f"seed = {seed}"]
    lines += ["", "[settings]", *(f"{name} = {toml_value(value)}" for name, value in settings.items())]
    write_bytes_atomic(path, ("\n".join(lines) + "\n").encode())


def chosen_model(configuration: Mapping[str, Any], flag: str | None) -> str:
    """Return the name of the method that the file and the flag agree on."""
    named = configuration.get("model")
    if named is not None and flag is not None and named != flag:
        raise ConfigError(f"--model {flag} contradicts model = {named!r} in the configuration; leave one of them out")
    return flag or named or DEFAULT_MODEL


def chosen_settings(
    settings_class: type[ModelSettings], configuration: Mapping[str, Any], assignments: Sequence[str]
) -> dict[str, Any]:
    """Return the checked hyperparameters that the file gives, changed by --set; the others keep their defaults.

    A method that tunes itself may still choose these.
    """
    fields = settings_class.hyperparameter_fields()
    changes = dict(configuration.get("settings", {})) | dict(map(parse_assignment, assignments))
    for name, value in changes.items():
        optional = name in fields and NoneType in get_args(fields[name].annotation)
        if optional and isinstance(value, str) and value.lower() == "none":
            changes[name] = None
        elif name in ModelSettings.model_fields:
            raise ConfigError(f"unknown setting {name!r}; it is not a hyperparameter, use --{name}")
    checked = settings_class(**changes).hyperparameters()
    return {name: checked[name] for name in changes}


def parse_assignment(text: str) -> tuple[str, Any]:
    """Return key and value of `key=value`."""
    key, sign, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not sign or not key or not value:
        raise ConfigError(f"--set {text}: expected key=value, for example --set num_layers=3")
    return key, parse_value(value)


def parse_value(text: str) -> Any:
    """Return the value that a string has in TOML, such as 3, 0.5, true or "word"; any other string stays as it is."""
    try:
        content = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return content["value"] if len(content) == 1 else text


def _check_data_table(path: Path, table: dict[str, Any]) -> None:
    from rankformer.data.source import DataSource

    if "source" in table:
        raise ConfigError(f"{path}: [data] has a source; leave it out, DATA on the command line names it")
    try:
        DataSource(source="checked later", **table)
    except ConfigError as error:
        raise ConfigError(f"{path}: [data] {error}") from error


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_value(key)} = {toml_value(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # JSON's strings are TOML's, but for one control character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
