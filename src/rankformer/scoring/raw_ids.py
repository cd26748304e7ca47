"""Raw ids that callers give: looked up in an `IdMap`, or refused by name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.errors import ConfigError, UnknownIdError


def names_of(ids: IdMap, raw_ids: Sequence[Any]) -> pa.Array:
    """Return raw ids, unknown ones among them, as an array of the type that the known ones have; else as strings."""
    try:
        return pa.array(raw_ids, ids.ids.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(list(map(str, raw_ids)))


def known_indices(ids: IdMap, raw_ids: Sequence[Any], kind: str) -> NDArray[np.int64]:
    """Return the index of every raw id, or refuse naming those that are unknown."""
    wanted = as_list(raw_ids, f"{kind}s")
    indices = ids.index_of(wanted)
    if (indices < 0).any():
        raise unknown_ids(ids, [wanted[row] for row in np.flatnonzero(indices < 0)], kind)
    return indices


def known_entries(
    ids: IdMap, histories: Mapping[Any, Sequence[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[Any, list[Any]]]:
    """Return (row, item index) of every known entry of the histories, and the unknown ids under each name."""
    if not isinstance(histories, Mapping):
        raise ConfigError(f"histories={histories!r}: expected a dictionary; write {{'a name': [item, item]}}")
    raw = [as_list(history, "history") for history in histories.values()]
    rows = np.repeat(np.arange(len(raw)), [len(history) for history in raw])
    entries = [value for history in raw for value in history]
    indices = ids.index_of(entries)
    names, unknown = list(histories), dict[Any, list[Any]]()
    for position in np.flatnonzero(indices < 0):
        unknown.setdefault(names[rows[position]], []).append(entries[position])
    return rows[indices >= 0], indices[indices >= 0], unknown


def as_list(raw_ids: Sequence[Any], label: str) -> list[Any]:
    """Return the ids as a list of plain values; one string is a likely mistake: it would be read letter by letter."""
    if isinstance(raw_ids, str | bytes):
        raise ConfigError(f"{label}={raw_ids!r}: a list of ids is needed; write [{raw_ids!r}]")
    for method in ("to_pylist", "tolist", "to_list"):  # Arrow; numpy and pandas; polars
        if hasattr(raw_ids, method):
            raw_ids = getattr(raw_ids, method)()
            break
    if not isinstance(raw_ids, Iterable):
        raise ConfigError(f"{label}={raw_ids!r}: a list of ids is needed; write [{raw_ids!r}]")
    if hasattr(raw_ids, "columns"):
        raise ConfigError(f"{label} is a table with several columns; pass the one with the ids")
    return list(raw_ids)


def unknown_ids(ids: IdMap, missing: list[Any], kind: str, remedy: str = "") -> UnknownIdError:
    """Return the error that names the first of the missing ids, shows what ids look like, and says what helps."""
    named = ", ".join(repr(value) for value in missing[:3]) + (", ..." if len(missing) > 3 else "")
    examples = " or ".join(repr(value) for value in ids.ids.slice(0, 2).to_pylist()) or "(there are none)"
    found = f"unknown {kind}: {named} ({len(missing)} not known to the model); ids look like {examples}"
    return UnknownIdError(f"{found}; {remedy}" if remedy else found)
