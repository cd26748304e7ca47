"""iALS beside implicit's ALS: the same data, iterations and threads, at three dimensions."""

import tempfile
import time
from pathlib import Path

from benchmarks import steps
from benchmarks.implicit_fits import ENVIRONMENT, fit_settings
from benchmarks.implicit_search import require_implicit, write_pairs
from benchmarks.measure import Result, in_fresh_process, note, paragraph, show, spread, table
from benchmarks.options import Options
from rankformer.data.source import DataSource

TITLE = "iALS beside implicit's ALS"
DATASETS = ("ali-display", "epinions")
DIMENSIONS = (64, 128, 256)
ITERATIONS = 15


def fit_ials(dataset: str, dim: int) -> Result:
    """Return the seconds of a whole fit, in a process of its own: graph, iterations, exact users."""
    from rankformer.models.ials import IALS

    train = DataSource(source=dataset).load().train
    IALS(embedding_dim=8, iterations=1).fit(train)  # warm-up
    started = time.perf_counter()
    IALS(embedding_dim=dim, iterations=ITERATIONS).fit(train)
    return {"seconds": time.perf_counter() - started}


def run(options: Options) -> Result:
    require_implicit()
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        train = DataSource(source=name).load().train
        for dim in DIMENSIONS:
            note(f"  {name}, {dim} factors")
            rows.append({"dataset": name, "dim": dim, **_measure(name, train, dim, min(options.rounds, 5))})
    return {"rows": rows}


def _measure(name: str, train: object, dim: int, rounds: int) -> Result:
    """Return both spreads, taken in turns so that a slow minute of the machine hits both alike."""
    ours, theirs = [], []
    setting = {"factors": dim, "iterations": ITERATIONS, "alpha": 300.0, "regularization": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.npz"
        write_pairs(pairs, train)  # type: ignore[arg-type]
        arguments = {"library": "als", "pairs": str(pairs), "settings": [setting], "folder": folder, "rounds": 1}
        for _ in range(rounds):
            ours.append(in_fresh_process(fit_ials, dataset=name, dim=dim)["seconds"])
            theirs += in_fresh_process(fit_settings, environment=ENVIRONMENT, **arguments)["seconds"][0]
    return {"ours": spread(ours), "implicit": spread(theirs)}


def report(results: Result) -> list[str]:
    columns = ["dataset", "factors", "IALS()", "implicit ALS", "ratio"]
    rows = [
        [row["dataset"], str(row["dim"]), show(row["ours"]), show(row["implicit"]), f"{ratio(row):.2f}"]
        for row in results["rows"]
    ]
    return [
        *paragraph(
            f"{ITERATIONS} iterations, all cores, each fit in a fresh process after a warm-up, in turns. Ours is the",
            "whole `fit`: building the graph, the iterations, and every user solved exactly at the end. Ratio of",
            "medians: below 1 ours is faster.",
        ),
        "",
        *table(columns, rows),
    ]


def ratio(row: Result) -> float:
    return float(row["ours"]["median"] / row["implicit"]["median"])
