"""What an interaction counts: the weights of events, and their decay with age.

weight      w = weight of the event * value of the weight column, each 1 where there is none
confidence  w * 2^(-age / half-life),   age counted from the newest interaction of the same log
"""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.data.readers.base import RawTable, clip
from rankformer.data.values import per_second
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions

OTHER = "other"  # stands for every event that is not listed
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
_LEAST_DECAY = 2.0**-20  # older interactions stay this much, so that sums of weights stay numbers to divide by


def event_weights_of(
    raw: RawTable, name: str, events: pa.ChunkedArray, weights: Mapping[str, float]
) -> NDArray[np.float32]:
    """Return the weight of each event of a column (E,); events without one are rejected, unless `other` has one."""
    is_coded = pa.types.is_dictionary(events.type)
    coded = (events if is_coded else events.cast(pa.string()).dictionary_encode()).unify_dictionaries().combine_chunks()
    known = coded.dictionary.to_pylist()
    table = [weights.get(event, weights.get(OTHER)) for event in known] + [weights.get(OTHER)]  # the last: missing
    codes = pc.fill_null(coded.indices, len(known)).to_numpy(zero_copy_only=False)
    unlisted = [code for code in np.unique(codes) if table[code] is None]
    if unlisted:
        shown = sorted(repr(clip(known[code])) if code < len(known) else "(missing)" for code in unlisted)
        more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
        raise DataError(
            f"{raw.name}: no weight for {', '.join(shown[:5])}{more} in column {name!r} "
            f"({np.isin(codes, unlisted).sum():,} rows); add to event_weights (--event-weights), or drop by {OTHER}=0"
        )
    values = np.array([math.nan if weight is None else weight for weight in table], dtype=np.float32)
    found: NDArray[np.float32] = values[codes]
    return found


def parse_half_life(text: str) -> float:
    """Return the seconds in a half-life such as 12h, 30d or 8w."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip().lower())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise ConfigError(f"half_life={text!r}: expected a number above 0 with h, d or w for its unit, such as 30d")
    return seconds


def joined_weights(old: "Interactions", new: "Interactions") -> tuple[NDArray[np.float32] | None, float | None]:
    """Return what interactions count once new ones follow them, and when that was counted where it decays with age.

    What was counted before is older now by the time between the newest interactions.

    Raises:
        DataError: weights decay with age in one of the two alone.
    """
    then = old.counted_at if old.half_life is None or old.times is None else float(old.times.max(initial=0))
    if (then is None) != (new.half_life is None):
        here, there = ("old", "new") if new.half_life is None else ("new", "old")
        raise DataError(
            f"weights decay with age in the {here} interactions and not in the {there} ones; decay both alike"
        )
    both = [np.ones(len(log), np.float32) if log.confidence is None else log.confidence.copy() for log in (old, new)]
    if then is not None and new.times is not None and new.half_life is not None:
        now = float(new.times.max())
        unit = (per_second(then) or 1.0) / (per_second(now) or 1.0)
        age = (now * unit - then) / (new.half_life * unit)  # in half-lives; below 0 where the new ones came late
        older = both[0 if age > 0 else 1]
        np.maximum(older * np.float32(2.0 ** -min(abs(age), 100)), np.minimum(older, _LEAST_DECAY), out=older)
        then = max(then, now * unit)
    return (None if old.confidence is None and new.confidence is None else np.concatenate(both)), then


def half_life_of(times: NDArray[Any] | None, half_life: str | float, name: str) -> float:
    """Return a half-life in the unit of the times; a string has its own unit, a number is in theirs.

    Times that were dates are microseconds since 1970; the unit of other numbers is told by their size.
    """
    if times is None:
        raise DataError(f"{name} has no times, so half_life cannot be applied; name a time column")
    if not isinstance(half_life, str):
        if not 0 < half_life < math.inf:
            raise ConfigError(f"half_life={half_life}: expected a number above 0")
        return float(half_life)
    seconds, newest = parse_half_life(half_life), float(times.max(initial=0))
    unit = per_second(newest)
    if len(times) and unit is None:
        raise DataError(
            f"{name}: the newest time is {newest:g}, which is not a time since 1970 in seconds, so half_life="
            f"{half_life} cannot be applied; use dates, or in Python a number in the unit of the times"
        )
    return seconds * (unit or 1.0)


def decay(times: NDArray[Any], half_life: float) -> NDArray[np.float64]:
    """Return 2^(-age / half_life) of each time (E,), age counted from the newest; at least 2^-20."""
    if not len(times):
        return np.ones(0)
    ages = (times.max() - times).astype(np.float64)
    factors: NDArray[np.float64] = np.maximum(np.exp2(-ages / half_life), _LEAST_DECAY)
    return factors
