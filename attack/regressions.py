"""Findings of the campaigns: each is made as small as it gets and kept in tests/regressions, whose test replays it.

A case is a mapping of plain values: with it alone its campaign can be repeated to the same outcome. It is kept as
CAMPAIGN/NAME/case.json, its `files` as files beside that. An outcome is a string; what stands before its first colon is
its kind, and a kind that is not `FINE` is a finding. ATTACK_KEEP=0 keeps nothing; ATTACK_REGRESSIONS is another folder.
"""

import hashlib
import json
import math
import os
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rankformer

Case = dict[str, Any]
Outcome = Callable[[Case], str]

PACKAGE = str(Path(rankformer.__file__).parent)
FINE = ("read", "refused", "taken", "finite", "stopped", "answered", "failed cleanly", "survived", "whole")
TRIES = 5000  # of one finding: a body of a megabyte is not shortened byte by byte
# Campaigns whose cases are moments in time, or depend on what else the machine does.
TIMED = ("writers", "memory", "clock", "connections", "swaps", "processes", "soak")


def kind(outcome: str) -> str:
    """Return the kind of an outcome, an empty string for one that is fine."""
    name = outcome.partition(":")[0]
    return "" if name in FINE else name


def described(error: BaseException) -> str:
    """Return the outcome of an error that should not have come: its class, our function that it came from, its text."""
    frames = traceback.extract_tb(error.__traceback__)
    where = next((frame.name for frame in reversed(frames) if frame.filename.startswith(PACKAGE)), "?")
    return f"{type(error).__name__} in {where}: {error}"[:200]


class Findings:
    """The findings of one campaign, the first of each kind.

    Args:
        campaign: its name.
        outcome: repeats a case.
        fewer: parts of a case whose keys, elements, letters or bytes may be left out.
        smaller: parts of a case that are JSON values and may be any smaller ones.
    """

    def __init__(self, campaign: str, outcome: Outcome, fewer: tuple[str, ...] = (), smaller: tuple[str, ...] = ()):
        self.campaign, self.outcome, self.parts = campaign, outcome, {fewer_of: fewer, smaller_of: smaller}
        self.found: dict[str, str] = {}  # the first outcome of each kind

    def add(self, case: Case, got: str, again: bool = True) -> None:
        """Take a case and what came of it; keep the first of a kind, made small, if it fails again.

        Where nothing can be tried again, it is kept as it is.
        """
        found = kind(got)
        if not found or found in self.found:
            return
        self.found[found], left = got, iter(range(TRIES))

        def fails(other: Case) -> bool:
            return next(left, None) is not None and kind(self.outcome(other)) == found

        if not again:
            keep(self.campaign, case, got)
        elif fails(case):
            for shrink, parts in self.parts.items():
                case = _each(case, [part for part in parts if part in case], shrink, fails)
            keep(self.campaign, case, self.outcome(case))


def fewer_of(value: Any, fails: Callable[[Any], bool]) -> Any:
    """Return what is left of a mapping, list, string or bytes when all that is not needed to fail is left out.

    Of a mapping these are keys, and then parts of its strings and bytes.
    """
    if isinstance(value, dict):
        for key in list(value):
            if fails(rest := {other: each for other, each in value.items() if other != key}):
                value = rest
        return _each(value, [key for key, each in value.items() if isinstance(each, bytes | str)], fewer_of, fails)
    step = max(1, len(value) // 2)
    while step and value:
        start, before = 0, len(value)
        while start < len(value):
            if fails(shorter := value[:start] + value[start + step :]):
                value = shorter
            else:
                start += step
        step = step if step == 1 and len(value) < before else step // 2
    return value


def smaller_of(value: Any, fails: Callable[[Any], bool]) -> Any:
    """Return a smaller JSON value that fails: less nesting, fewer entries, shorter strings, numbers nearer to 0."""
    if isinstance(value, bool | None):
        return value
    if isinstance(value, int | float):
        return _nearer_to_0(value, fails)
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            if fails(part):
                return smaller_of(part, fails)
    value = fewer_of(value, fails)
    keys = () if isinstance(value, str) else value if isinstance(value, dict) else range(len(value))
    return _each(value, [*keys], smaller_of, fails)


def _nearer_to_0(value: Any, fails: Callable[[Any], bool]) -> Any:
    zero, is_int = type(value)(0), isinstance(value, int)
    if fails(zero):
        return zero
    shift = value.bit_length() if is_int else max(0, math.frexp(value)[1])
    while shift:
        less = (abs(value) >> shift) * (-1 if value < 0 else 1) if is_int else math.ldexp(value, -shift)
        value, shift = (less, shift) if less not in (zero, value) and fails(less) else (value, shift // 2)
    return value


def _each(whole: Any, keys: list[Any], shrink: Callable[..., Any], fails: Callable[[Any], bool]) -> Any:
    """Return a mapping or list in which the values at some keys are made smaller, one after another."""
    for key in keys:
        put = partial(_put, whole, key)
        whole = put(shrink(whole[key], lambda value, put=put: fails(put(value))))
    return whole


def _put(whole: Any, key: Any, value: Any) -> Any:
    return {**whole, key: value} if isinstance(whole, dict) else [*whole[:key], value, *whole[key + 1 :]]


def folder() -> Path:
    """Return where findings are kept."""
    return Path(os.environ.get("ATTACK_REGRESSIONS", Path(__file__).parents[1] / "tests" / "regressions"))


def keep(campaign: str, case: Case, failed: str) -> None:
    """Write a case among the regressions, and beside it what it did, unless ATTACK_KEEP is 0."""
    stored = {name: encoded(value) for name, value in case.items() if name != "files"}
    files: dict[str, bytes] = case.get("files", {})
    hashed = hashlib.sha256(json.dumps([stored, {name: data.hex() for name, data in files.items()}]).encode())
    words = "".join(letter if letter.isalnum() else "-" for letter in kind(failed).lower())[:60]
    place = folder() / campaign / f"{words}-{hashed.hexdigest()[:8]}"
    if os.environ.get("ATTACK_KEEP", "1") != "0":
        for name, data in {**files, "case.json": (json.dumps({"failed": failed, **stored}) + "\n").encode()}.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)


def kept(campaign: str) -> Iterator[tuple[str, Case]]:
    """Yield the cases that are kept of a campaign, each with its name."""
    for place in sorted(path.parent for path in (folder() / campaign).glob("*/case.json")):
        case = json.loads((place / "case.json").read_bytes(), object_hook=_decoded)
        case.pop("failed", None)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path != place / "case.json")
        if files:
            case["files"] = {str(path.relative_to(place)): path.read_bytes() for path in files}
        yield place.name, case


def encoded(value: Any) -> Any:
    """Return a value as strict JSON; what JSON has no form for is a mapping of one key, which is one of `FORMS`."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 2**53 else {"$int": hex(value)}
        case float():
            return value if math.isfinite(value) else {"$float": repr(value)}
        case bytes():
            return {"$bytes": value.hex()}
        case list():
            return [encoded(each) for each in value]
        case tuple():
            return {"$tuple": encoded(list(value))}
        case dict() if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encoded(each) for key, each in value.items()}
        case dict():
            return {"$dict": [[encoded(key), encoded(each)] for key, each in value.items()]}
    raise TypeError(f"a case holds plain values only, not {type(value).__name__}")


FORMS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda digits: int(digits, 16),
    "$float": float,
    "$bytes": bytes.fromhex,
    "$tuple": tuple,
    "$dict": dict,
}


def _decoded(found: dict[str, Any]) -> Any:
    name = next(iter(found), "")
    return FORMS[name](found[name]) if name in FORMS else found
