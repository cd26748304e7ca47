"""Validation quality over wall-clock seconds: of a training done here, or of a run folder's log."""

import json
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT, Result, Unavailable, note
from rankformer.data.source import DataSource
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.rankformer import Rankformer

METRIC = "ndcg@20"
TEST_METRICS = ("ndcg@20", "recall_capped@20")
Point = dict[str, float]


def train_rankformer(dataset: str, settings: dict[str, Any], epochs: int | None) -> Result:
    """Return the course of one training and the test metrics of its best validation.

    The clock starts before the graph is built and runs through every validation.
    """
    if epochs is not None:
        settings = {**settings, "epochs": epochs, "validate_every": min(5, epochs)}
    parts, model = DataSource(source=dataset).load(), Rankformer(**settings)
    course: list[Point] = []
    started = time.perf_counter()

    def note_validation(event: dict[str, Any]) -> None:
        if event["event"] == "validation":
            seconds = time.perf_counter() - started
            course.append({"epoch": event["epoch"], "seconds": seconds, METRIC: event[METRIC]})

    model.fit(parts.train, parts.valid, on_event=note_validation)
    total = time.perf_counter() - started
    tested = evaluate(model, parts.test, metrics=TEST_METRICS).metrics
    return {"settings": model.settings.model_dump(mode="json"), "course": course, "seconds": total, "test": tested}


def paper_settings(dataset: str) -> dict[str, Any]:
    """Return the settings of the paper's row, from the config that reproduces it."""
    path = ROOT / "experiments" / "configs" / dataset / "rankformer.toml"
    if not path.exists():
        raise Unavailable(f"the paper's settings for {dataset} are not in experiments/configs")
    return dict(tomllib.loads(path.read_text())["settings"])


def course_of_run(folder: Path) -> tuple[str, list[Point]]:
    """Return the dataset of a run folder and the validations in its log."""
    manifest = json.loads((folder / "manifest.json").read_text())
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    names = ("epoch", "seconds", METRIC)
    course = [{name: event[name] for name in names} for event in events if event["event"] == "validation"]
    return manifest["data"]["name"], course


def courses_of_runs(dataset: str, folders: Sequence[Path]) -> list[list[Point]]:
    """Return the courses of the finished runs on a dataset; say which folders hold none."""
    courses = []
    for folder in folders:
        if not (folder / "manifest.json").exists():
            note(f"  {folder.name} is not a finished run; left out")
            continue
        name, course = course_of_run(folder)
        if name == dataset:
            courses.append(course)
    return courses


def best_point(course: list[Point]) -> Point:
    return max(course, key=lambda point: point[METRIC])


def seconds_to_share(course: list[Point], share: float) -> float:
    """Return when the course first reached a share of its best value."""
    wanted = share * best_point(course)[METRIC]
    return next(point["seconds"] for point in course if point[METRIC] >= wanted)
