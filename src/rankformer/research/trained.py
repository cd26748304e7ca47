"""The result of one training: metrics on the test part, value of each user, how the training went."""

import base64
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions, Parts
from rankformer.errors import RunFolderError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.files import unseal_json
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import Model, TrainedModel
from rankformer.models.registry import model_class
from rankformer.runs.checkpoint import CheckpointStore
from rankformer.scoring.recommender import Recommender

METRICS = ("ndcg@20", "recall@20", "recall_capped@20")
Event = dict[str, Any]


def train_and_evaluate(
    parts: Parts,
    model: Model,
    folder: Path,
    on_event: Callable[[Event], None] | None = None,
) -> dict[str, Any]:
    """Return what a training came to, going on from the checkpoint in `folder` if there is one.

    A training whose numbers stop being finite counts with its best validation before that, as in the authors' code,
    where the best epoch so far is what is reported; "failed" then says what happened.
    """
    started = time.perf_counter()
    failed, recommender = None, None
    try:
        recommender = _fit(model, parts, folder, on_event).recommender
        log = model.log
    except TrainingError as error:
        failed, log = str(error), _read_log(folder)
        if isinstance(model, TrainedModel):
            recommender = _best_so_far(model, parts.train, folder)
    result = {"failed": failed, "course": course_of(log, time.perf_counter() - started), "validations": _values(log)}
    if recommender is None:
        return {**result, "metrics": None, "per_user": {}, "protocol": None}
    evaluation = evaluate(recommender, parts.test, metrics=METRICS, mask="train", seed=model.seed)
    per_user = {name: pack(values) for name, values in evaluation.per_user.items()}
    return {**result, **evaluation.to_dict(), "per_user": per_user}


def build_model(name: str, settings: dict[str, Any], seed: int, device: str) -> Model:
    """Return the method with its settings, not fitted."""
    return model_class(name)(seed=seed, device=device, **settings)


def course_of(log: list[Event], wall_seconds: float) -> dict[str, Any]:
    """Return epochs, best epoch and seconds of a training; methods without epochs have the seconds of their solution.

    Seconds per epoch are the median over epochs, validations and checkpoints aside.
    """
    epochs = [event for event in log if event["event"] == "epoch"]
    if not epochs:
        solved = next((event["seconds"] for event in log if event["event"] == "solved"), wall_seconds)
        return {"epochs": 0, "best_epoch": 0, "seconds_per_epoch": None, "seconds": solved, "seconds_to_best": solved}
    best = next((event for event in reversed(log) if event.get("best")), log[-1])
    before = [0.0, *(event["seconds"] for event in log)]
    durations = [event["seconds"] - before[at] for at, event in enumerate(log) if event["event"] == "epoch"]
    return {
        "epochs": epochs[-1]["epoch"],
        "best_epoch": best["epoch"],
        "seconds_per_epoch": statistics.median(durations),
        "seconds": log[-1]["seconds"],
        "seconds_to_best": best["seconds"],
    }


def pack(values: NDArray[np.float64]) -> str:
    """Return numbers as text: 32-bit little-endian floats in base64."""
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def unpack(text: str) -> NDArray[np.float64]:
    """Return the numbers that `pack` wrote."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float64)


def _fit(model: Model, parts: Parts, folder: Path, on_event: Callable[[Event], None] | None) -> Model:
    try:
        return model.fit(parts.train, parts.valid, run_folder=folder, resume=True, on_event=on_event)
    except RunFolderError:  # the checkpoint is damaged or another version's: begin again
        shutil.rmtree(folder, ignore_errors=True)
        return model.fit(parts.train, parts.valid, run_folder=folder, on_event=on_event)


def _read_log(folder: Path) -> list[Event]:
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def _values(log: list[Event]) -> list[Event]:
    return [event for event in log if event["event"] == "validation"]


def _best_so_far(model: TrainedModel, train: Interactions, folder: Path) -> Recommender | None:
    """Return what answers with the best validation's parameters in the checkpoint; None without a validation."""
    pointer = folder / "checkpoint" / "latest.json"
    if not pointer.is_file():
        return None
    state = CheckpointStore(pointer.parent, unseal_json(pointer)["identity"]).load()
    best = {name.removeprefix("best."): value for name, value in (state or ({}, {}))[0].items() if "best." in name}
    if not best:
        return None
    graph = BipartiteGraph.from_interactions(train)
    network = model.network_for(graph.num_users, graph.num_items)
    network.load_state_dict(best)
    with torch.no_grad():
        return Recommender(network.embeddings(graph), train.user_ids, train.item_ids, train)
