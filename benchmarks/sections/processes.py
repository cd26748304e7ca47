"""One and several processes of the service side by side: answers per second, and what each adds to the memory."""

import asyncio
import tempfile
from pathlib import Path

from benchmarks.http_load import Result, closed_loop, for_seconds
from benchmarks.measure import note, show_seconds, table
from benchmarks.options import Options
from benchmarks.serving_load import SIZES, failures, make_run, requests_of, service

TITLE = "Several processes of the service"
COUNTS = (1, 2, 3)
SECONDS = 4.0


def run(options: Options) -> list[Result]:
    del options
    found: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large")
        make_run(path, SIZES["large"], 0)
        for count in COUNTS:
            found += measure(path, count)
    return found


def measure(path: Path, count: int) -> list[Result]:
    """Return one result per number of connections; the memory is that after the load before it."""
    requests, found = requests_of(SIZES["large"]), []
    with service(path, *(["--processes", str(count)] if count > 1 else [])) as (port, process):
        asyncio.run(closed_loop(port, requests, 64, for_seconds(2)))  # warm-up
        for connections in (1, 16, 64):
            note(f"  {count} processes, {connections} connections")
            load = asyncio.run(closed_loop(port, requests, connections, for_seconds(SECONDS)))
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            answering = [memory_of(int(child)) for child in children] or [memory_of(process)]
            pss = sum(each["pss"] for each in answering) + (memory_of(process)["pss"] if children else 0.0)
            own = sum(each["private"] for each in answering) / len(answering)
            found.append({"processes": count, "connections": connections, **load, "pss_mb": pss, "private_mb": own})
    return found


def memory_of(process: int) -> dict[str, float]:
    """Return the memory of a process in MB: its share of what is shared (PSS), and what it has alone."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"pss": sizes["Pss"], "private": sizes["Private_Clean"] + sizes["Private_Dirty"]}


def report(results: list[Result]) -> list[str]:
    columns = ("processes", "connections", "answers/s", "p50", "p99", "not 200", "MB in all", "MB of one process alone")
    rows = [
        (
            *(row["processes"], row["connections"], f"{row['per_second']:.0f}"),
            *(show_seconds(row["p50"]), show_seconds(row["p99"]), failures(row)),
            *(f"{row['pss_mb']:.0f}", f"{row['private_mb']:.0f}"),
        )
        for row in results
    ]
    return [
        "100,000 items x 64, 10,000 users, lists of 10; client and service on the same cores. MB in all: proportional",
        "set size of all processes, the one that loads among them.",
        "",
        *table(columns, rows),
    ]
