"""Our step over the number of pairs, in time and memory, beside what the planner predicts."""

import math

from benchmarks import steps
from benchmarks.measure import (
    Result,
    in_fresh_process,
    note,
    paragraph,
    peak_memory_mb,
    seconds_of,
    show,
    spread,
    table,
)
from benchmarks.options import Options
from benchmarks.planner import predicted_mb
from rankformer.training.memory import kept_memory

TITLE = "Our step over the number of pairs"


def run(options: Options) -> Result:
    rows = []
    for size in options.sizes:
        note(f"  {size:,} pairs")
        limit, rounds = options.memory_limit_gb, min(options.rounds, 3)
        rows.append({"pairs": size, **in_fresh_process(steps_at, memory_limit_gb=limit, size=size, rounds=rounds)})
    fitted = [row for row in rows if not row.get("does_not_fit")]
    return {"rows": rows, "exponent": exponent(fitted)}


def steps_at(size: int, rounds: int) -> Result:
    """Return seconds per step, peak memory and predicted memory at one size."""
    model, train = steps.paper_rankformer("synthetic"), steps.synthetic(size)
    predicted = predicted_mb(model, train)
    with kept_memory():
        step = steps.our_step(train, model)
        step()
        seconds = spread([seconds_of(step) for _ in range(rounds)])
    return {
        "users": train.num_users,
        "items": train.num_items,
        "seconds": seconds,
        "peak_mb": peak_memory_mb(),
        "predicted_mb": predicted,
    }


def exponent(rows: list[Result]) -> float | None:
    """Return the slope of log seconds over log pairs by least squares, or None below two sizes."""
    if len(rows) < 2:
        return None
    x = [math.log(row["pairs"]) for row in rows]
    y = [math.log(row["seconds"]["median"]) for row in rows]
    centre_x, centre_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - centre_x) * (b - centre_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - centre_x) ** 2 for a in x)


def report(results: Result) -> list[str]:
    rounds = max((row["seconds"]["count"] for row in results["rows"] if "seconds" in row), default=0)
    columns = ["pairs", "users = items", "seconds per step", "per million pairs", "peak memory", "predicted", "ratio"]
    lines = [
        *paragraph(
            "Synthetic graphs with E/64 users and as many items, the item at rank r drawn as often as r^-1/2; 3",
            f"layers, d = 64. Each size in a fresh process: {rounds} rounds of one step after a warm-up, medians",
            "(fastest to slowest); the peak includes building the graph. Predicted is the figure of `rankformer plan`,",
            "the ratio peak over predicted.",
        ),
        "",
        *table(columns, [row_cells(row) for row in results["rows"]]),
    ]
    if results["exponent"] is not None:
        lines += ["", f"Exponent over E by a log-log fit: **{results['exponent']:.2f}** (1 is linear)."]
    return lines


def row_cells(row: Result) -> list[str]:
    if row.get("does_not_fit"):
        return [f"{row['pairs']:,}", "", "does not fit", "", "", "", ""]
    seconds, peak, predicted = row["seconds"], row["peak_mb"], row["predicted_mb"]
    million = f"{seconds['median'] / row['pairs'] * 1e6:.2f} s"
    cells = [f"{row['pairs']:,}", f"{row['users']:,}", show(seconds), million, f"{peak:.0f} MB"]
    return [*cells, f"{predicted:.0f} MB", f"{peak / predicted:.2f}"] if predicted else [*cells, "no planner", ""]
