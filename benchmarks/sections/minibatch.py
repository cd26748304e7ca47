"""Full batch against mini-batches: seconds per epoch, and the quality that a fixed time buys."""

import math
import time

from benchmarks import steps
from benchmarks.curves import METRIC, Point, best_point
from benchmarks.measure import Result, in_fresh_process, note, paragraph, show, show_seconds, spread, table
from benchmarks.options import Options
from rankformer.data.source import DataSource
from rankformer.evaluation.validator import make_validator
from rankformer.training.activations import kept_memory

TITLE = "Full batch and mini-batches"
DATASETS = ("ali-display",)
MODELS = {"Rankformer": steps.paper_rankformer, "Rankformer-CL": steps.paper_rankformer_cl}
BATCH_SIZES = (2048, 8192, 32768)
SMALLEST_RATE = 1e-3  # the paper's for Rankformer-CL in batches of 2048
VALIDATE_AFTER = 5.0  # seconds


def run(options: Options) -> Result:
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        for model, batch_size, rate in choices():
            note(f"  {name}: {model}, batch {batch_size or 'full'}, rate {rate:g}, {options.budget_seconds:g} s")
            arguments = {"dataset": name, "model": model, "batch_size": batch_size, "rate": rate}
            arguments["budget"] = options.budget_seconds
            rows.append(in_fresh_process(train_within, **arguments))
    return {"rows": rows, "budget_seconds": options.budget_seconds}


def choices() -> list[tuple[str, int | None, float]]:
    """Return models with batch sizes and learning rates; these grow as the square root of the batch."""
    small = [(size, SMALLEST_RATE * math.sqrt(size / BATCH_SIZES[0])) for size in BATCH_SIZES]
    # Rankformer's are ten times as large, nearer to what the paper gives its full batch.
    return [
        ("Rankformer", None, 0.1),
        *(("Rankformer", size, 10 * rate) for size, rate in small),
        *(("Rankformer-CL", size, rate) for size, rate in small),
    ]


@kept_memory()
def train_within(dataset: str, model: str, batch_size: int | None, rate: float, budget: float) -> Result:
    """Return the course of a training that ends with the first epoch past the budget, validations included."""
    parts = DataSource(source=dataset).load()
    started = time.perf_counter()
    untrained = MODELS[model](dataset, batch_size=batch_size, learning_rate=rate)
    loop, validate = steps.training_loop(parts.train, untrained), make_validator(parts.train, parts.valid, METRIC)
    epochs: list[float] = []
    course: list[Point] = []
    last, now = 0.0, 0.0
    while now < budget:
        loop.progress.epoch += 1
        before = time.perf_counter()
        loop.one_epoch()
        epochs.append(time.perf_counter() - before)
        now = time.perf_counter() - started
        if now - last >= VALIDATE_AFTER or now >= budget:
            value = validate(loop.scorer())[METRIC]
            last = now = time.perf_counter() - started
            course.append({"epoch": loop.progress.epoch, "seconds": now, METRIC: value})
    return {
        "dataset": dataset,
        "model": model,
        "batch_size": batch_size,
        "rate": rate,
        "pairs": len(parts.train),
        "steps_per_epoch": loop.progress.step // len(epochs),
        "epoch": spread(epochs[1:] or epochs),
        "epochs": len(epochs),
        "course": course,
    }


def report(results: Result) -> list[str]:
    columns = ["dataset", "model", "batch", "learning rate", "steps per epoch", "seconds per epoch", "epochs"]
    return [
        *paragraph(
            "Every step propagates over the whole graph, whatever its batch, so an epoch's time grows with its steps.",
            "Paper settings otherwise. Each training, in a fresh process, ends with the first epoch past",
            f"{results['budget_seconds']:g} seconds, graph and validations included, and is validated at the first",
            f"epoch's end after every {VALIDATE_AFTER:g} seconds. Learning rates grow as the square root of the batch",
            "from the paper's 0.001 for Rankformer-CL at 2048, ten times that for Rankformer, whose full batch has the",
            "paper's 0.1.",
            "One training each, seed 0; seconds per epoch are medians over its epochs after the first (fastest to",
            "slowest).",
        ),
        "",
        *table([*columns, "best valid NDCG@20", "after"], [row_cells(row) for row in results["rows"]]),
    ]


def row_cells(row: Result) -> list[str]:
    best = best_point(row["course"])
    batch = f"{row['batch_size']:,}" if row["batch_size"] else f"full ({row['pairs']:,})"
    cells = [row["dataset"], row["model"], batch, f"{row['rate']:g}", str(row["steps_per_epoch"]), show(row["epoch"])]
    return [*cells, str(row["epochs"]), f"{best[METRIC]:.4f}", show_seconds(best["seconds"])]
