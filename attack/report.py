"""What the campaigns found: what must be zero, one line for each, and the page docs/reliability.md."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attack.regressions import TIMED
from rankformer.files import write_bytes_atomic

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "attack" / "results.json"
PAGE = ROOT / "docs" / "reliability.md"
PICTURE = ROOT / "docs" / "soak.png"

# What must be zero or empty, and what must stay below a bound.
ZERO = {
    "kills": ("different",),
    "replacements": ("lost or mixed",),
    "faults": ("lost or mixed",),
    "writers": ("mixed", "unexpected"),
    "bytes": ("not refused",),
    "journal": ("lost", "invented", "twice"),
    "updates": ("parent changed", "lost or mixed", "different"),
    "folders": ("others",),
    "settings": ("unexpected",),
    "inputs": ("unexpected",),
    "numerics": ("unexpected", "setting not named"),
    "memory": ("unclear", "wrong", "served wrongly"),
    "clock": ("different", "unexpected"),
    "bodies": ("5xx", "failed"),
    "requests": ("5xx", "failed", "tracebacks"),
    "connections": ("failed", "tracebacks"),
    "swaps": ("failed swaps", "failed answers"),
    "processes": ("not replaced", "lost answers", "lost events", "tracebacks"),
    "soak": ("failed", "failed answers", "failed swaps", "damaged runs taken", "5xx to faults", "tracebacks"),
}
BELOW = {
    "folders": {"slowest s": 2.0, "memory MB": 200.0},
    "inputs": {"slowest s": 2.0},
    "bodies": {"cpu ms": 100.0, "memory MB": 20.0, "p99 ms": 100.0},
    "requests": {"p99 ms": 100.0},
    "connections": {"p99 ms": 100.0},
    "soak": {"growth %": 2.0, "p99 ms": 100.0},
}


_NOT_ADDED = ("formats", "methods", "lines reached", "found by coverage", "answered meanwhile")


def violations(name: str, result: dict[str, Any]) -> list[str]:
    """Return what a campaign found that must not be."""
    bad = [f"{key}: {result[key]}"[:500] for key in ZERO[name] if result.get(key)]
    return bad + [
        f"{key}: {result[key]:.1f}, expected below {most:g}"
        for key, most in BELOW.get(name, {}).items()
        if result.get(key, 0.0) >= most
    ]


def together(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the results of two parts of a campaign as one: counts and lists are added, of measures the worse stays."""
    found = dict(new)
    for key, value in old.items():
        other = new.get(key)
        if key == "seed":
            found[key] = f"{value}, {other}"
        elif isinstance(value, list) and isinstance(other, list):
            found[key] = value + other
        elif isinstance(value, dict) and isinstance(other, dict):
            found[key] = together(value, other)
        elif isinstance(value, float) or key in _NOT_ADDED:
            found[key] = value + other if key == "took s" else max(value, other)
        elif isinstance(value, int) and isinstance(other, int):
            found[key] = value + other
    return found


def line(name: str, result: dict[str, Any]) -> str:
    """Return a result as one line."""
    hidden = ("samples", "kinds", "seed", "dearest", "statuses", "took s")
    return ", ".join(f"{key} {_shown(value)}" for key, value in result.items() if key not in hidden)


def kept(name: str) -> dict[str, Any] | None:
    """Return the result of a campaign as it was kept, None before the first."""
    known = json.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
    return known[name]["result"] if name in known else None


def keep(name: str, meaning: str, result: dict[str, Any], bad: list[str]) -> None:
    """Put a result beside those of other campaigns."""
    known = json.loads(RESULTS.read_bytes()) if RESULTS.exists() else {}
    date = datetime.now(UTC).date().isoformat()
    known[name] = {"meaning": meaning, "date": date, "violations": bad, "result": result}
    ordered = {campaign: known[campaign] for campaign in ZERO if campaign in known}
    write_bytes_atomic(RESULTS, (json.dumps(ordered, indent=1) + "\n").encode())


def write_page() -> None:
    """Write the page from all results there are."""
    known = json.loads(RESULTS.read_bytes())
    rows = []
    for name, entry in known.items():
        failures = "; ".join(entry["violations"]).replace("|", "/")[:300] or "none"
        when = f"{entry['result']['seed']}, {entry['date']}"
        rows.append(f"| {entry['meaning'].rstrip('.')} | {line(name, entry['result'])} | {failures} | {when} |")
    limits = [f"`{name}`: {key} below {most:g}" for name, bounds in BELOW.items() for key, most in bounds.items()]
    text = f"""# Reliability

What the standing attack saw. `make attack` runs every campaign at a twentieth of its full size and writes this page;
`ATTACK_HOURS=1 make attack` runs them in full, with a soak of an hour; `python -m attack CAMPAIGN --seed N` one again.
A campaign fails when anything was lost, mixed, accepted or answered that must not be, or a bound was passed
({"; ".join(limits)}).

| campaign | seen | failures | seed, date |
|---|---|---|---|
{chr(10).join(rows)}

![Memory, descriptors and latency of the soak](soak.png)

The soak asks at a modest rate while runs are reloaded and faults are made: damaged and missing runs, cut, idle and deaf
connections, malformed requests and bodies made to be dear. Its latency includes what else the machine does.

`inputs` changes files of every format, packing, encoding, layout and source, an eighth of them in search of lines of
the readers that were not reached yet. `ATTACK_SECONDS` ends it early.

What a campaign finds is made as small as it gets (fewer settings, rows, headers, kills; shorter files, bodies and
paths; smaller values) and kept in `tests/regressions/CAMPAIGN`, where a test repeats it from then on; `ATTACK_KEEP=0`
keeps nothing. What depends on a moment or on the machine cannot be repeated exactly, and is only reported with its
seed: kills at random moments, prunings of a journal while it is written, and all of
{", ".join(f"`{name}`" for name in TIMED)}.

What is promised, to whom, and what is not, is in [SECURITY.md](../SECURITY.md).
"""
    write_bytes_atomic(PAGE, text.encode())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return str(len(value)) if isinstance(value, list | dict) else f"{value:,}"
