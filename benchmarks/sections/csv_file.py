"""Reading a large csv log with text ids."""

import csv
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Result, in_fresh_process, note, paragraph, peak_memory_mb, seconds_of, show, spread
from benchmarks.options import Options
from rankformer.data.interactions import Interactions

TITLE = "Reading a million-line csv with text ids"
LINES, USERS, ITEMS = 10**6, 50_000, 40_000


def run(options: Options) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        write_log(path)
        note(f"  {options.rounds} fresh processes")
        readings = [in_fresh_process(read_log, path=str(path)) for _ in range(options.rounds)]
        megabytes = path.stat().st_size / 1e6
    return {
        "lines": LINES,
        "file_mb": megabytes,
        "seconds": spread([reading["seconds"] for reading in readings]),
        "peak_mb": max(reading["peak_mb"] for reading in readings),
        "before_mb": max(reading["before_mb"] for reading in readings),
    }


def write_log(path: Path) -> None:
    generator = np.random.default_rng(0)
    users, items = generator.integers(0, USERS, LINES), generator.integers(0, ITEMS, LINES)
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["user", "item", "timestamp"])
        writer.writerows((f"u{u}", f"i{i}", t) for t, (u, i) in enumerate(zip(users, items, strict=True)))


def read_log(path: str) -> Result:
    before = peak_memory_mb()
    seconds = seconds_of(lambda: Interactions.read(path))
    return {"seconds": seconds, "before_mb": before, "peak_mb": peak_memory_mb()}


def report(results: Result) -> list[str]:
    seconds = results["seconds"]
    return paragraph(
        f"{results['lines']:,} lines, {results['file_mb']:.0f} MB, user and item as text with a header and times, from",
        f"the file to `Interactions`: **{show(seconds)}**, median (fastest to slowest) of {seconds['count']} rounds in",
        f"a fresh process each. Peak memory {results['peak_mb']:.0f} MB, of which {results['before_mb']:.0f} MB were",
        "there before reading (interpreter and libraries).",
    )
