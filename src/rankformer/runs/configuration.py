"""What to train, put together from a TOML file and flags.

model = "rankformer"
seed = 0                 # optional
[settings]               # of the model
num_layers = 3
[data]                   # optional: how to read DATA, the settings of `DataSource`
k_core = 5
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.models.base import Model

KNOWN = {"model": str, "seed": int, "settings": dict, "data": dict}
DEFAULT_MODEL = "rankformer"


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the content of a configuration file, empty without one; anything unknown in it is refused."""
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for key, value in content.items():
        if key not in KNOWN:
            raise ConfigError(f"{path}: unknown key {key!r}; expected {', '.join(KNOWN)}")
        if type(value) is not KNOWN[key]:
            raise ConfigError(f"{path}: {key} is {value!r}; expected {_WORDS[KNOWN[key]]}")
    _check_data_table(path, content.get("data", {}))
    return content


_WORDS = {str: "a text", int: "a whole number", dict: "a table"}


def _check_data_table(path: Path, table: dict[str, Any]) -> None:
    from rankformer.data.source import DataSource

    if "source" in table:
        raise ConfigError(f"{path}: [data] has a source; leave it out, DATA on the command line names it")
    try:
        DataSource(source="checked later", **table)
    except ConfigError as error:
        raise ConfigError(f"{path}: [data] {error}") from error


def chosen_model(config: dict[str, Any], flag: str | None) -> str:
    """Return the name of the method that the file and the flag agree on."""
    named = config.get("model")
    if named is not None and flag is not None and named != flag:
        raise ConfigError(f"--model {flag} contradicts model = {named!r} in the configuration; leave one of them out")
    return flag or named or DEFAULT_MODEL


def chosen_settings(method: "type[Model]", config: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the checked settings of a method: its defaults, changed by the file, changed by --set."""
    fields = method.settings_class.model_fields
    changes = dict(config.get("settings", {}))
    for key, text in map(parse_assignment, assignments):
        may_be_none = key in fields and NoneType in get_args(fields[key].annotation)
        changes[key] = None if may_be_none and text.lower() == "none" else parse_value(text)
    return method.settings_class(**changes).model_dump()


def parse_assignment(text: str) -> tuple[str, str]:
    """Return key and value of `key=value`."""
    key, sign, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not sign or not key or not value:
        raise ConfigError(f"--set {text}: expected key=value, for example --set num_layers=3")
    return key, value


def parse_value(text: str) -> Any:
    """Return the value that a text has in TOML, such as 3, 0.5, true or "word"; any other text stays as it is."""
    try:
        content = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return content["value"] if len(content) == 1 else text
