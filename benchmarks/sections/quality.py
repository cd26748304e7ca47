"""Validation quality over wall-clock seconds, as a picture."""

import json
from pathlib import Path
from typing import Any

from benchmarks import steps
from benchmarks.curves import (
    METRIC,
    Point,
    best_point,
    courses_of_runs,
    paper_settings,
    seconds_to_share,
    train_rankformer,
)
from benchmarks.implicit_search import fit_and_score, require_implicit
from benchmarks.measure import Result, Unavailable, in_fresh_process, note, paragraph, show_seconds, spread, table
from benchmarks.options import Options
from benchmarks.pictures import draw_quality
from rankformer.data.source import DataSource

TITLE = "Quality over time"
PICTURE = "quality-over-time"
DATASETS = ("ali-display", "epinions")
ITERATIONS = (1, 2, 4, 8, 15, 30, 60)
METHODS = {"default": "Rankformer, default settings", "paper": "Rankformer, paper's settings", "als": "implicit ALS"}


def run(options: Options) -> Result:
    require_implicit()
    earlier = results_of_libraries(options.results / "libraries.json", options.epochs is not None)
    rows = []
    for name in steps.available(options.datasets or DATASETS):
        if name not in earlier:
            raise Unavailable(f"it continues the libraries section, which has no results for {name}; run that first")
        rows.append(measure_dataset(name, earlier[name], options))
    draw_quality(rows, METHODS, options.figures / PICTURE)
    return {"rows": rows, "picture": f"{PICTURE}.png"}


def results_of_libraries(path: Path, quick: bool) -> dict[str, Result]:
    if not path.exists():
        raise Unavailable("it continues the libraries section, which has no results yet; run that first")
    content = json.loads(path.read_text())
    if content["quick"] and not quick:
        raise Unavailable("it continues the libraries section, whose results are of a trial run; measure that first")
    return {row["dataset"]: row for row in content["results"]["rows"]}


def measure_dataset(name: str, earlier: Result, options: Options) -> Result:
    """Return the courses of each method on one dataset: one per run, a point per validation."""
    note(f"  {name}: als with {', '.join(map(str, ITERATIONS))} iterations")
    courses = {"default": [earlier["rankformer"]["course"]], "als": [course_of_als(name, earlier["als"], options)]}
    recorded = courses_of_runs(name, options.runs)
    if not recorded:
        note(f"  {name}: rankformer with the paper's settings")
        arguments = {"dataset": name, "settings": paper_settings(name), "epochs": options.epochs}
        recorded = [in_fresh_process(train_rankformer, **arguments)["course"]]
        source = "trained here"
    else:
        source = "logs of earlier runs"
    return {"dataset": name, "paper_source": source, **courses, "paper": recorded}


def course_of_als(name: str, found: Result, options: Options) -> list[dict[str, Any]]:
    """Return a point per number of iterations, each fitted anew with the chosen setting."""
    parts = DataSource(source=name).load()
    settings = [{**found["setting"], "iterations": count} for count in ITERATIONS]
    seconds, scores, _ = fit_and_score("als", parts, settings, min(options.rounds, 3))
    spreads = [spread(taken) for taken in seconds]
    return [
        {"epoch": count, "seconds": taken["median"], "spread": taken, METRIC: score}
        for count, taken, score in zip(ITERATIONS, spreads, scores, strict=True)
    ]


def report(results: Result) -> list[str]:
    als = results["rows"][0]["als"][0]
    fits, iterations = als[0]["spread"]["count"], ", ".join(str(point["epoch"]) for point in als)
    sources = ", ".join(f"{row['dataset']}: {row['paper_source']}" for row in results["rows"])
    columns = ["dataset", "method", "runs", "best valid NDCG@20", "seconds to it", "seconds to 99 % of it"]
    return [
        f"![Validation NDCG@20 over seconds](FIGURES/{results['picture']})",
        "",
        *paragraph(
            "The best validation NDCG@20 found so far against wall-clock seconds, the large open marker at the last",
            "rise; no test data is touched. Rankformer's clock includes every validation; a point of ALS is a fit anew",
            f"with {iterations} iterations of the setting chosen in the section on implicit, the",
            f"median of {fits} rounds, scoring left out. Default settings: the training of that section. Paper's",
            f"settings: {sources}; seconds of a log depend on how busy the machine was then. Medians over the runs.",
        ),
        "",
        *table(columns, [row_cells(row, method) for row in results["rows"] for method in METHODS]),
    ]


def row_cells(row: Result, method: str) -> list[str]:
    courses: list[list[Point]] = row[method]
    best = spread([best_point(course)[METRIC] for course in courses])
    reached = spread([best_point(course)["seconds"] for course in courses])
    nearly = spread([seconds_to_share(course, 0.99) for course in courses])
    value = f"{best['median']:.4f}"
    if len(courses) > 1:
        value += f" ({best['low']:.4f} to {best['high']:.4f})"
    times = [show_seconds(timing["median"]) for timing in (reached, nearly)]
    return [row["dataset"], METHODS[method], str(len(courses)), value, *times]
