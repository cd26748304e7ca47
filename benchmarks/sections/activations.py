"""What keeping less for the backward pass saves in memory, and costs in time and in quality."""

from typing import get_args

from benchmarks import steps
from benchmarks.curves import METRIC, best_point, train_rankformer
from benchmarks.measure import (
    Result,
    Unavailable,
    in_fresh_process,
    interleave,
    note,
    paragraph,
    peak_memory_mb,
    show,
    table,
)
from benchmarks.options import Options
from rankformer.models.rankformer import RankformerSettings
from rankformer.training.activations import kept_memory

TITLE = "What is kept for the backward pass"
DATASETS = ("ali-display", "epinions", "yelp2018-lightgcn")
TRAINED = ("ali-display", "epinions")  # the larger one would take minutes for each kind
MEMORY_STEPS = 3


def run(options: Options) -> Result:
    if "activations" not in RankformerSettings.model_fields:
        raise Unavailable("this version of Rankformer has no setting named activations")
    kinds = list(get_args(RankformerSettings.model_fields["activations"].annotation))
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        note(f"  {name}: {', '.join(kinds)}, {options.rounds} rounds")
        seconds = in_fresh_process(time_kinds, dataset=name, kinds=kinds, rounds=options.rounds)
        peaks = {kind: in_fresh_process(peak_of_kind, dataset=name, kind=kind)["peak_mb"] for kind in kinds}
        for kind in kinds:
            row = {"dataset": name, "kind": kind, "seconds": seconds[kind], "peak_mb": peaks[kind]}
            if name in TRAINED:
                note(f"  {name}: a whole training with {kind}")
                arguments = {"dataset": name, "settings": {"activations": kind}, "epochs": options.epochs}
                trained = in_fresh_process(train_rankformer, **arguments)
                row |= {"valid": best_point(trained["course"])[METRIC], "test": trained["test"][METRIC]}
            rows.append(row)
    return {"rows": rows, "rounds": options.rounds}


@kept_memory()
def time_kinds(dataset: str, kinds: list[str], rounds: int) -> Result:
    train = steps.training_part(dataset)
    tasks = {kind: steps.our_step(train, steps.paper_rankformer(dataset, activations=kind)) for kind in kinds}
    return interleave(tasks, rounds)


@kept_memory()
def peak_of_kind(dataset: str, kind: str) -> Result:
    step = steps.our_step(steps.training_part(dataset), steps.paper_rankformer(dataset, activations=kind))
    for _ in range(MEMORY_STEPS):
        step()
    return {"peak_mb": peak_memory_mb()}


def report(results: Result) -> list[str]:
    first = {row["dataset"]: row for row in reversed(results["rows"])}  # the first kind of each dataset
    columns = ["dataset", "activations", "seconds per step", "beside the first", "peak memory", "beside the first"]
    columns += ["best valid NDCG@20", "test NDCG@20"]
    return [
        *paragraph(
            f"A whole step with the paper's layers, {results['rounds']} rounds in turns in one process after a",
            f"warm-up; medians (fastest to slowest). Memory is the peak of a fresh process over {MEMORY_STEPS} steps,",
            "torch included. The NDCG@20 are those of one training with the default settings, seed 0.",
        ),
        "",
        *table(columns, [row_cells(row, first[row["dataset"]]) for row in results["rows"]]),
    ]


def row_cells(row: Result, first: Result) -> list[str]:
    slower = row["seconds"]["median"] / first["seconds"]["median"]
    cells = [row["dataset"], row["kind"], show(row["seconds"]), f"{slower:.2f} x", f"{row['peak_mb']:.0f} MB"]
    quality = [f"{row[part]:.4f}" if part in row else "" for part in ("valid", "test")]
    return [*cells, f"{row['peak_mb'] / first['peak_mb']:.2f}", *quality]
