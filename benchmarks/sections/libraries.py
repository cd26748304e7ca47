"""Rankformer with its default settings beside the factorisations of `implicit`."""

from benchmarks import steps
from benchmarks.curves import METRIC, TEST_METRICS, best_point, train_rankformer
from benchmarks.implicit_search import FACTORS, GRIDS, require_implicit, search
from benchmarks.measure import Result, in_fresh_process, note, paragraph, show, show_seconds, table
from benchmarks.options import Options
from rankformer.data.source import DataSource

TITLE = "Beside implicit's ALS and BPR"
DATASETS = ("ali-display", "epinions")
LABELS = {"als": "implicit ALS", "bpr": "implicit BPR"}


def run(options: Options) -> Result:
    require_implicit()
    rows = [measure_dataset(name, options) for name in steps.available(options.datasets or DATASETS)]
    return {"grids": GRIDS, "rows": rows}


def measure_dataset(name: str, options: Options) -> Result:
    parts, quick = DataSource(source=name).load(), options.epochs is not None
    found = {}
    for library in LABELS:
        note(f"  {name}: {library}")
        found[library] = search(library, parts, min(options.rounds, 3), quick)
    note(f"  {name}: rankformer")
    ours = in_fresh_process(train_rankformer, dataset=name, settings={}, epochs=options.epochs)
    return {"dataset": name, "rankformer": ours, **found}


def report(results: Result) -> list[str]:
    grids = [f"{LABELS[library]}: {grid_line(results['grids'][library])}" for library in LABELS]
    fits = results["rows"][0]["als"]["fit"]["count"]
    columns = ["dataset", "method", "fit", "whole search", "valid NDCG@20", "test NDCG@20", "test recall_capped@20"]
    return [
        *paragraph(
            f"One evaluator, one split, training items masked, d = {FACTORS}. The settings of implicit are the best of",
            "a grid by NDCG@20 on the validation part; every fit runs in a process without torch, on all cores, with",
            "OPENBLAS_NUM_THREADS=1 as the library recommends. Fit is the chosen setting alone, the median of",
            f"{fits} rounds (fastest to slowest); the whole search is every fit of the grid, scoring left out.",
            "Rankformer is `Rankformer()`, its default settings, not searched here; one training, seed 0. Its fit is",
            "the time from the start to the best validation, its whole search the time until it stopped, both with the",
            "building of the graph and every validation.",
        ),
        "",
        *[f"- {line}" for line in grids],
        "",
        *table(columns, [cells for row in results["rows"] for cells in rows_of(row)]),
        "",
        *[line for row in results["rows"] for line in chosen_lines(row)],
    ]


def grid_line(grid: Result) -> str:
    return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in grid.items())


def rows_of(row: Result) -> list[list[str]]:
    ours = row["rankformer"]
    best = best_point(ours["course"])
    first = [row["dataset"], "Rankformer()", show_seconds(best["seconds"]), show_seconds(ours["seconds"])]
    lines = [[*first, f"{best[METRIC]:.4f}", *test_cells(ours["test"])]]
    for library, label in LABELS.items():
        found = row[library]
        searched = f"{show_seconds(found['grid_seconds'])}, {found['grid_fits']} fits"
        cells = [row["dataset"], label, show(found["fit"]), searched, f"{found['valid']:.4f}"]
        lines.append([*cells, *test_cells(found["test"])])
    return lines


def test_cells(metrics: dict[str, float]) -> list[str]:
    return [f"{metrics[name]:.4f}" for name in TEST_METRICS]


def chosen_lines(row: Result) -> list[str]:
    lines = []
    for library, label in LABELS.items():
        found = row[library]
        setting = ", ".join(f"{name}={value}" for name, value in found["setting"].items())
        edge = f" (at the edge of the grid: {', '.join(found['at_edge'])})" if found["at_edge"] else ""
        lines.append(f"- {row['dataset']}, {label}: {setting}{edge}")
    return lines
