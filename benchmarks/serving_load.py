"""The service under load: `python -m benchmarks.serving_load [--seconds N] [--out FILE.json]`.

Client and server are two processes on this machine. Embeddings are random (the time does not depend on their values);
users are drawn at random; lists have 10 items and leave seen ones out.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.http_load import Result, closed_loop, for_seconds, get, open_loop
from benchmarks.machine import describe_machine, machine_line
from benchmarks.measure import note, show_seconds, table

ADMIN_TOKEN = "a-token-for-measuring-only"
RUN_COMMAND = "import sys; from rankformer.cli.main import run; sys.exit(run(sys.argv[1:]))"
SIZES = {"demo-sized": (900, 400, 16), "large": (10_000, 100_000, 20)}  # users, items, interactions per user
OVERLOAD = 10


def make_run(folder: Path, size: tuple[int, int, int], seed: int) -> None:
    """Write a run of random embeddings of dimension 64, with ids and titles like those of a shop."""
    import numpy as np
    import pyarrow as pa
    import torch

    from rankformer.data.id_map import IdMap
    from rankformer.data.interactions import Interactions
    from rankformer.runs.saved import Run, save_run
    from rankformer.scoring.embeddings import Embeddings
    from rankformer.scoring.recommender import Recommender

    users, items, pairs = size
    random = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    user_ids = IdMap(pa.array([f"user-{number:06d}" for number in range(users)]))
    item_ids = IdMap(pa.array([f"item-{number:06d}" for number in range(items)]))
    history = Interactions(
        np.repeat(np.arange(users, dtype=np.int32), pairs),
        random.integers(0, items, users * pairs).astype(np.int32),
        user_ids,
        item_ids,
        item_titles=pa.array([f"Title of item {number}" for number in range(items)]),
    )
    vectors = [torch.randn(count, 64, generator=generator) for count in (users, items)]
    recommender = Recommender(Embeddings(*vectors), user_ids, item_ids, history)
    save_run(folder, Run(model="random", settings={}, seed=seed, recommender=recommender))


def requests_of(size: tuple[int, int, int]) -> list[bytes]:
    return [get(f"/v1/recommend/user-{number:06d}?k=10") for number in range(size[0])]


@contextmanager
def service(run: Path, *flags: str) -> Iterator[tuple[int, int]]:
    """Yield (port, process id) of a service that is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", RUN_COMMAND, "serve", str(run), "--port", str(port), "--no-access-log", *flags]
    environment = {**os.environ, "RANKFORMER_ADMIN_TOKEN": ADMIN_TOKEN}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _wait_until_ready(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the service ended: {process.communicate()[1].decode()[-500:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the service did not become ready within a minute")


def resident_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def cpu_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def peak_of(process: int, work: Any) -> tuple[Result, float]:
    """Return what the work returns, and the most memory the process held meanwhile."""
    task = asyncio.ensure_future(work)
    peak = resident_mb(process)
    while not task.done():
        peak = max(peak, resident_mb(process))
        await asyncio.wait([task], timeout=0.1)
    return task.result(), peak


def measure_throughput(run: Path, size: tuple[int, int, int], seconds: float, flags: Sequence[str]) -> list[Result]:
    """Return one result per number of connections."""
    results = []
    with service(run, *flags) as (port, process):
        asyncio.run(closed_loop(port, requests_of(size), 8, for_seconds(1)))  # warm-up
        for connections in (1, 16, 64):
            note(f"{run.name} {' '.join(flags) or 'batching'} with {connections} connections")
            used = cpu_seconds(process)
            found = asyncio.run(closed_loop(port, requests_of(size), connections, for_seconds(seconds)))
            cost = {"server_cpu_seconds": (cpu_seconds(process) - used) / found["answered"]}
            results.append({"run": run.name, "batching": not flags, "connections": connections, **found, **cost})
    return results


def point(link: Path, target: Path) -> None:
    """Point a symbolic link elsewhere, in one step."""
    fresh = link.with_name(f"{link.name}.new")
    fresh.symlink_to(target)
    fresh.replace(link)


def measure_swaps(runs: Sequence[Path], link: Path, size: tuple[int, int, int], count: int) -> Result:
    """Return what callers saw while the model was reloaded again and again."""
    point(link, runs[0])
    done = False
    took: list[float] = []

    def swap(port: int) -> None:
        nonlocal done
        try:
            for number in range(1, count + 1):
                point(link, runs[number % len(runs)])
                headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
                url = f"http://127.0.0.1:{port}/v1/admin/reload"
                started = time.perf_counter()
                urllib.request.urlopen(urllib.request.Request(url, method="POST", headers=headers), timeout=60).close()
                took.append(time.perf_counter() - started)
        finally:
            done = True

    async def both(port: int, process: int) -> tuple[Result, float]:
        load = peak_of(process, closed_loop(port, requests_of(size), 16, lambda: done))
        return (await asyncio.gather(load, asyncio.to_thread(swap, port)))[0]

    with service(link) as (port, process):
        asyncio.run(closed_loop(port, requests_of(size), 16, for_seconds(1)))  # warm-up
        before = resident_mb(process)
        note(f"{count} reloads of {runs[0].name}")
        found, peak = asyncio.run(both(port, process))
        after = resident_mb(process)
    memory = {"memory_before_mb": before, "memory_peak_mb": peak, "memory_after_mb": after}
    return {"run": runs[0].name, "swaps": len(took), "swap_seconds": sum(took) / len(took), **found, **memory}


def measure_overload(run: Path, size: tuple[int, int, int], capacity: float, seconds: float) -> Result:
    """Return what callers saw at ten times the rate that the service can answer."""
    rate = OVERLOAD * capacity
    with service(run) as (port, process):
        asyncio.run(closed_loop(port, requests_of(size), 64, for_seconds(1)))  # warm-up
        before = resident_mb(process)
        note(f"{run.name} at {rate:.0f} requests per second")
        found, peak = asyncio.run(peak_of(process, open_loop(port, requests_of(size), 1000, rate, seconds)))
        afterwards = asyncio.run(closed_loop(port, requests_of(size), 1, for_seconds(1)))
    memory = {"memory_before_mb": before, "memory_peak_mb": peak}
    return {"run": run.name, "rate": rate, **found, **memory, "p50_afterwards": afterwards["p50"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--swaps", type=int, default=50, help="reloads of the model under load")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    document: Result = {"machine": describe_machine(), "throughput": [], "swaps": [], "overload": []}
    with tempfile.TemporaryDirectory() as name:
        for label in options.sizes:
            size = SIZES[label]
            runs = [Path(name) / label, Path(name) / f"{label} again"]
            for seed, run in enumerate(runs):
                make_run(run, size, seed)
            for flags in ([], ["--no-batching"]):
                document["throughput"] += measure_throughput(runs[0], size, options.seconds, flags)
            document["swaps"].append(measure_swaps(runs, Path(name) / "current", size, options.swaps))
            mine = [row for row in document["throughput"] if row["run"] == label and row["batching"]]
            capacity = max(row["per_second"] for row in mine)
            document["overload"].append(measure_overload(runs[0], size, capacity, options.seconds))
    if options.out:
        options.out.write_text(json.dumps(document, indent=2) + "\n")
    print("\n".join(report(document)))


def report(document: Result) -> list[str]:
    """Return the results as Markdown."""
    parts = [throughput_table(document["throughput"]), swaps_table(document["swaps"])]
    parts.append(overload_table(document["overload"]))
    return [machine_line(document["machine"]), *(line for part in parts for line in ("", *part))]


def throughput_table(rows: Sequence[Result]) -> list[str]:
    columns = ("catalogue", "batching", "connections", "answers/s", "p50", "p99", "server CPU each", "not 200")
    cells = []
    for row in rows:
        what = (row["run"], "on" if row["batching"] else "off", row["connections"], f"{row['per_second']:.0f}")
        times = (show_seconds(row[name]) for name in ("p50", "p99", "server_cpu_seconds"))
        cells.append((*what, *times, failures(row)))
    return table(columns, cells)


def swaps_table(rows: Sequence[Result]) -> list[str]:
    columns = (
        "catalogue",
        "reloads",
        "seconds each",
        "answers",
        "failed",
        "models seen",
        "p50",
        "p99",
        "MB before / peak / after",
    )
    cells = []
    for row in rows:
        memory = " / ".join(f"{row[f'memory_{when}_mb']:.0f}" for when in ("before", "peak", "after"))
        counts = (
            row["run"],
            row["swaps"],
            f"{row['swap_seconds']:.2f}",
            row["answered"],
            failures(row),
            row["versions"],
        )
        cells.append((*counts, show_seconds(row["p50"]), show_seconds(row["p99"]), memory))
    return table(columns, cells)


def overload_table(rows: Sequence[Result]) -> list[str]:
    columns = (
        "catalogue",
        "due/s",
        "sent/s",
        "200/s",
        "p50",
        "p99",
        "statuses",
        "broken",
        "MB before / peak",
        "p50 afterwards",
    )
    cells = []
    for row in rows:
        sent = (row["due"] - row["unsent"]) / row["elapsed"]
        rates = (f"{row['rate']:.0f}", f"{sent:.0f}", f"{row['per_second']:.0f}")
        statuses = ", ".join(f"{status}: {count}" for status, count in row["statuses"].items())
        memory = f"{row['memory_before_mb']:.0f} / {row['memory_peak_mb']:.0f}"
        times = (show_seconds(row["p50"]), show_seconds(row["p99"]))
        cells.append((row["run"], *rates, *times, statuses, row["broken"], memory, show_seconds(row["p50_afterwards"])))
    return table(columns, cells)


def failures(row: Result) -> int:
    return int(row["broken"] + sum(count for status, count in row["statuses"].items() if status != "200"))


if __name__ == "__main__":
    main()
