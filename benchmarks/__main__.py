"""`make bench`: measure, side by side in one run, and write RESULTS.md and results.json beside this file."""

import argparse
import csv
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import steps
from benchmarks.measure import format_seconds, in_fresh_process, interleave
from rankformer.data.interactions import Interactions
from rankformer.embeddings import Embeddings
from rankformer.errors import DataError
from rankformer.retrieval.top_k import top_k

HERE = Path(__file__).parent
SIZES = (250_000, 500_000, 1_000_000, 2_000_000)


def step_against_textbook(name: str, rounds: int) -> dict[str, object]:
    """Seconds of a whole training step (sampling, forward, backward, optimiser) and peak memory of each version."""
    train = steps.training_part(name)
    setting = steps.PAPER[name]
    tasks = {"textbook": steps.textbook_step(train, *setting), "ours": steps.our_step(train, *setting)}
    timings = interleave(tasks, rounds, {"ours": 5})
    bare = in_fresh_process(["bare"])["peak_mb"]
    memory = {kind: in_fresh_process([kind, name, "3"]).get("peak_mb", float("nan")) for kind in tasks}
    return {
        "dataset": name,
        "textbook": str(timings["textbook"]),
        "ours": str(timings["ours"]),
        "faster": timings["textbook"].median / timings["ours"].median,
        "textbook_mb": memory["textbook"],
        "ours_mb": memory["ours"],
        "bare_mb": bare,
        "memory_share": memory["ours"] / memory["textbook"],
        "extra_memory_share": (memory["ours"] - bare) / (memory["textbook"] - bare),
    }


def scaling(rounds: int) -> dict[str, object]:
    """Seconds of our step on graphs of yelp2018-lightgcn's shape at growing size, and the exponent over E."""
    tasks = {str(size): steps.our_step(steps.synthetic(size), *steps.PAPER["yelp2018-lightgcn"]) for size in SIZES}
    timings = interleave(tasks, rounds, {})
    medians = [timings[str(size)].median for size in SIZES]
    exponent = float(np.polyfit(np.log(SIZES), np.log(medians), 1)[0])
    return {"seconds": {str(size): value for size, value in zip(SIZES, medians, strict=True)}, "exponent": exponent}


def top_k_against_product(rounds: int) -> dict[str, object]:
    """Exact top-20 of all users at yelp2018-lightgcn's size, against the bare blocked matrix product."""
    generator = torch.Generator().manual_seed(0)
    n, m, d, block = 31_668, 38_048, 64, 110
    embeddings = Embeddings(torch.randn(n, d, generator=generator), torch.randn(m, d, generator=generator))
    users, buffer, right = torch.arange(n), torch.empty(block, m), embeddings.items.T

    def product() -> None:
        for rows in embeddings.users.split(block):
            torch.mm(rows, right, out=buffer[: len(rows)])

    timings = interleave({"product": product, "top_k": lambda: top_k(embeddings, users, 20)}, rounds, {})
    ratio = timings["top_k"].median / timings["product"].median
    return {"product": str(timings["product"]), "top_k": str(timings["top_k"]), "ratio": ratio}


def load_csv() -> dict[str, object]:
    """Seconds to read a million-line csv with a header and text ids."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        with open(path, "w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["user", "item", "timestamp"])
            users, items = generator.integers(0, 50_000, 10**6), generator.integers(0, 40_000, 10**6)
            writer.writerows((f"u{u}", f"i{i}", t) for t, (u, i) in enumerate(zip(users, items, strict=True)))
        started = time.perf_counter()
        Interactions.read(path)
        return {"seconds": time.perf_counter() - started}


def report(results: dict[str, object]) -> str:
    """Return the measurements as Markdown."""
    lines = [
        "# Measurements",
        "",
        "Written by `make bench`; what a table compares ran side by side in one process, in turns. Seconds are medians",
        "with the fastest and slowest repetition. Memory is the peak of a process of its own.",
        "",
        f"Machine: {results['machine']}. Versions: {results['versions']}.",
        "",
        "## A whole training step, paper settings, d = 64",
        "",
        "The textbook version (`benchmarks/textbook.py`) is the paper's appendix in autograd, with (E, d) messages and",
        "the sums of outer products built as (n, d, d) arrays.",
        "",
        "| dataset | textbook | ours | faster | peak memory textbook | ours | share | share above bare torch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['dataset']} | {row['textbook']} | {row['ours']} | **{row['faster']:.1f} x** "
        f"| {row['textbook_mb']:.0f} MB | {row['ours_mb']:.0f} MB | {row['memory_share']:.2f} "
        f"| {row['extra_memory_share']:.2f} |"
        for row in results["steps"]
    ]
    lines += [
        "",
        "## Our step over the number of pairs",
        "",
        "Graphs with yelp2018-lightgcn's shape (users and items grow with the pairs), 3 layers.",
        "",
        "| pairs | seconds per step |",
        "|---|---|",
    ]
    lines += [f"| {int(size):,} | {format_seconds(value)} |" for size, value in results["scaling"]["seconds"].items()]
    lines += ["", f"Exponent over E: **{results['scaling']['exponent']:.2f}** (1 is linear)."]
    top = results["top_k"]
    lines += [
        "",
        "## Exact top-20 for all 31,668 users x 38,048 items, d = 64",
        "",
        f"Bare blocked product {top['product']}, exact top-20 {top['top_k']}: **{top['ratio']:.2f} x** the product.",
        "",
        "## Reading a million-line csv with text ids",
        "",
        f"{format_seconds(results['csv']['seconds'])}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns that each measurement takes")
    parser.add_argument("--datasets", default="ali-display,epinions", help="datasets of the step comparison")
    arguments = parser.parse_args()
    try:
        rows = [step_against_textbook(name, arguments.rounds) for name in arguments.datasets.split(",")]
    except DataError as error:
        raise SystemExit(f"error: {error}") from None
    results = {
        "machine": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, {platform.machine()}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}",
        "steps": rows,
        "scaling": scaling(arguments.rounds),
        "top_k": top_k_against_product(arguments.rounds),
        "csv": load_csv(),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    text = report(results)
    (HERE / "RESULTS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
