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
from rankformer.training.activations import kept_memory

TITLE = "Our step over the number of pairs"
SAME_NODES = 250_000  # users, and items
FAMILIES = {"same": f"{SAME_NODES:,} users and as many items at every size", "growing": "E/64 users and as many items"}


def run(options: Options) -> Result:
    return {"families": [measure_family(name, options) for name in FAMILIES]}


def measure_family(name: str, options: Options) -> Result:
    """Return the rows of one family of graphs and the exponent over them."""
    rows = []
    for size in options.sizes:
        note(f"  {FAMILIES[name]}: {size:,} pairs")
        arguments = {"size": size, "nodes": SAME_NODES if name == "same" else None, "rounds": min(options.rounds, 3)}
        found = in_fresh_process(steps_at, memory_limit_gb=options.memory_limit_gb, **arguments)
        rows.append({"pairs": size, **found})
    fitted = [row for row in rows if not row.get("does_not_fit")]
    return {"family": name, "rows": rows, "exponent": exponent(fitted)}


def steps_at(size: int, nodes: int | None, rounds: int) -> Result:
    """Return seconds per step, peak memory and predicted memory at one size."""
    model, train = steps.paper_rankformer("synthetic"), steps.synthetic(size, nodes)
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
    rows = [row for family in results["families"] for row in family["rows"] if "seconds" in row]
    rounds = max((row["seconds"]["count"] for row in rows), default=0)
    lines = paragraph(
        "Synthetic graphs, users drawn uniformly, the item at rank r as often as r^-1/2; 3 layers, d = 64. Each size",
        f"in a fresh process: {rounds} rounds of one step after a warm-up, medians (fastest to slowest); the peak",
        "includes building the graph. Predicted is the figure of `rankformer plan`, the ratio peak over predicted.",
        "Among the same users and items a step is a constant for the nodes plus a constant per pair. Where the nodes",
        "grow along, their tables outgrow the caches (8 MB at a million pairs, 512 MB at 64 million), and a row that",
        "is read in no order then comes from main memory: that is what an exponent above 1 shows.",
    )
    for family in results["families"]:
        lines += ["", *family_lines(family)]
    return lines


def family_lines(family: Result) -> list[str]:
    columns = ["pairs", "users = items", "seconds per step", "per million pairs", "peak memory", "predicted", "ratio"]
    lines = [f"{FAMILIES[family['family']].capitalize()}:", ""]
    lines += table(columns, [row_cells(row) for row in family["rows"]])
    if family["exponent"] is not None:
        lines += ["", f"Exponent over E by a log-log fit: **{family['exponent']:.2f}** (1 is linear)."]
    return lines


def row_cells(row: Result) -> list[str]:
    if row.get("does_not_fit"):
        return [f"{row['pairs']:,}", "", "does not fit", "", "", "", ""]
    seconds, peak, predicted = row["seconds"], row["peak_mb"], row["predicted_mb"]
    million = f"{seconds['median'] / row['pairs'] * 1e6:.2f} s"
    cells = [f"{row['pairs']:,}", f"{row['users']:,}", show(seconds), million, f"{peak:.0f} MB"]
    return [*cells, f"{predicted:.0f} MB", f"{peak / predicted:.2f}"] if predicted else [*cells, "no planner", ""]
