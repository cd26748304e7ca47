"""The sequence fit, evaluate, refit, save: what `train`, `demo`, `tune` and the experiments all call."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import numpy as np

from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.data.parts import Parts
from rankformer.data.source import DataSource
from rankformer.errors import RunFolderError, TrainingError
from rankformer.evaluation.evaluator import DEFAULT_METRICS, Evaluation, evaluate, ranks_of
from rankformer.files import sha256_of
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.runs.checkpoint import CHECKPOINT, REFIT, CheckpointStore, remove_checkpoint
from rankformer.runs.fitting import Learner, counted, identity_of
from rankformer.runs.manifest import MANIFEST, is_run, located
from rankformer.runs.saved import Run
from rankformer.runs.training_log import LOG, TrainingHistory, history_of, read_log
from rankformer.scoring.recommender import Recommender
from rankformer.training.context import Event, TrainingState

Stage = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a fit and its evaluation came to."""

    recommender: Recommender | None  # what answers; None when training failed before a first validation
    evaluation: Evaluation | None  # of the test part; None when it is empty, or nothing answers
    history: TrainingHistory  # how the training went
    log: list[Event]  # its events
    failure: str | None = None  # why the training stopped before its end, None if it did not


def fit_and_evaluate(
    model: Learner,
    parts: Parts,
    *,
    folder: Path | None = None,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    restart_if_damaged: bool = False,
    keep_best_on_failure: bool = False,
    stage: Stage = lambda name: nullcontext(),
) -> Outcome:
    """Fit a model on the training part and evaluate it once on the test part.

    Args:
        model: not fitted yet.
        parts: training, validation and test part.
        folder: where training log and checkpoints are written; without it nothing is written.
        resume: continue from the checkpoint in the folder, if there is one.
        on_event: called with each event of the training.
        metrics: of the evaluation.
        restart_if_damaged: start again when the checkpoint cannot be used, in place of raising.
        keep_best_on_failure: when numbers stop being finite, evaluate the best validation before that.
        stage: opens a context during whatever is not training, for progress displays.

    Raises:
        TrainingError: training failed, unless `keep_best_on_failure`.
        RunFolderError: the checkpoint is damaged or another run's, unless `restart_if_damaged`.
    """
    failure, recommender = None, None
    try:
        try:
            model.fit(parts.train, parts.valid, run_folder=folder, resume=resume, on_event=on_event, verbose=False)
        except (RunFolderError, JSONDecodeError):
            if folder is None or is_run(folder) or not (restart_if_damaged and resume):
                raise
            remove_checkpoint(folder / CHECKPOINT)
            (folder / LOG).unlink(missing_ok=True)
            model.fit(parts.train, parts.valid, run_folder=folder, on_event=on_event, verbose=False)
        recommender, log = model.recommender, model.log
    except TrainingError as error:
        if not keep_best_on_failure:
            raise
        failure, log = str(error), [] if folder is None else read_log(folder)
        if folder is not None:
            recommender = _best_so_far(model, parts, folder)
    evaluation = None
    if recommender is not None and ranks_of(parts.test).total(len(parts.test))[0]:
        with stage("evaluating"):
            evaluation = evaluate(recommender, parts.test, metrics=metrics, mask="train", seed=model.settings.seed)
    return Outcome(recommender, evaluation, history_of(log, getattr(model.settings, "metric", None)), log, failure)


def train_run(
    model: Learner,
    source: DataSource,
    parts: Parts,
    folder: Path,
    training_folder: Path | None = None,
    *,
    items: Items | None = None,
    resume: bool = False,
    refit: bool = False,
    on_event: Callable[[Event], None] | None = None,
    stage: Stage = lambda name: nullcontext(),
) -> tuple[Outcome, dict[str, Any]]:
    """Fit, evaluate, refit if asked to, and save a run; return its outcome and what the manifest says of its data.

    A refit learns again from all parts, with what validation chose held fixed. What is saved is the refitted model with
    the metrics of the one before; the outcome and `model` stay those before. Its events have those choices under
    `refit`. Resuming takes the finished fit from its last checkpoint and continues the refit from its own. Titles and
    attributes of `items` are kept in the run. Training logs and checkpoints go to `training_folder` while it trains,
    the folder of the run by default.
    """
    work = training_folder or folder
    outcome = fit_and_evaluate(model, parts, folder=work, resume=resume, on_event=on_event, stage=stage)
    data, whole, final, said = describe_data(source, parts), parts.whole, model, None
    ranks = ranks_of(whole)
    if refit and ranks.total(len(whole) - len(parts.train))[0]:
        started, choices = time.perf_counter(), model.choices()

        def tell(event: Event) -> None:
            if on_event is not None:
                on_event({**event, "refit": choices})

        final = model.refitted(whole, run_folder=work / CHECKPOINT / REFIT, resume=resume, on_event=tell)
        final.log = model.log
        seconds = round(time.perf_counter() - started, 3)
        size = int(ranks.total(len(whole))[0])
        said = {"interactions": size, **choices, "seconds": seconds, "metrics": "before the refit"}
    if items is not None:
        with stage("items"):
            final.use_items(items)
    with stage("saving"):
        final.save(folder, data=data, evaluation=outcome.evaluation, known=whole, refit=said)
    return outcome, data


def update_run(
    model: Learner,
    parent: Path,
    run: Run,
    new: Sequence[Interactions],
    folder: Path,
    *,
    items: Items | None = None,
    journal: Mapping[str, int] | None = None,
    on_event: Callable[[Event], None] | None = None,
    stage: Stage = lambda name: nullcontext(),
) -> dict[str, Any]:
    """Let a model learn new interactions and save it as another run; return what the manifest says of the update.

    That is: the SHA-256 of the parent's manifest (`parent`); how many interactions, users and items are new; how the
    parent's lists do on the new interactions of its users, before these are learned (`before`, with its protocol); the
    run whose test part was measured last, with its metrics (`measured`); and the positions in the journal (`journal`).

    Args:
        model: of the parent.
        parent: its folder, which is only read.
        run: what that folder holds.
        new: logs of new interactions.
        folder: for the updated run.
        items: titles and attributes, in place of those of the parent.
        journal: positions up to which the journal is among the new interactions; those of the parent by default.
        on_event: called with each event of the training.
        stage: as for `fit_and_evaluate`.
    """
    old, version = model.recommender, sha256_of(located(parent, MANIFEST))
    started = time.perf_counter()
    final = model.updated(*new, on_event=on_event, verbose=False)
    seconds, log = round(time.perf_counter() - started, 3), final.recommender.history
    count, last = len(log) - len(old.history), run.update or {}
    own = {"run": version[:12], "metrics": run.metrics, "protocol": run.protocol}
    said: dict[str, Any] = {
        "parent": version,
        "interactions": count,
        "users": log.num_users - len(old.user_ids),
        "items": log.num_items - len(old.item_ids),
        "seconds": seconds,
        "measured": last.get("measured", own),
        "journal": last.get("journal", {}) if journal is None else dict(journal),
    }
    new_rows = np.arange(len(old.history), len(log))
    hittable = log.users[new_rows] < len(old.user_ids)  # of users that the parent knows, and not known already
    known = hittable & (log.items[new_rows] < len(old.item_ids))
    hittable[known] = ~old.seen.contains(log.users[new_rows[known]], log.items[new_rows[known]])
    if hittable.any():
        with stage("measuring the parent on what is new"):
            later = log.rows(new_rows[hittable], "new interactions")
            found = evaluate(old, later, mask="known", seed=model.settings.seed)
        said["before"] = {"metrics": found.metrics, "protocol": found.protocol.to_dict()}
    if items is not None:
        with stage("items"):
            final.use_items(items)
    sizes: dict[str, Any] = {"users": log.num_users, "items": log.num_items, "train_interactions": len(log)}
    kept = {name: run.data[name] for name in ("source", "name") if name in run.data}
    with stage("saving"):
        final.save(folder, data=kept | sizes, update=said)
    return said


def describe_data(source: DataSource, parts: Parts) -> dict[str, Any]:
    """Return what a manifest says of its data: all that is needed to load it again, sizes and fingerprint."""
    sizes = [int(size) for size in ranks_of(parts.train).total(*map(len, parts))]
    return {
        "source": source.absolute().model_dump(mode="json"),
        "name": source.name,
        "users": parts.train.num_users if parts.train.block is None else parts.train.block.num_users,
        "items": parts.train.num_items,
        "train_interactions": sizes[0],
        "valid_interactions": sizes[1],
        "test_interactions": sizes[2],
        "fingerprint": parts.fingerprint,
    }


def _best_so_far(model: Learner, parts: Parts, folder: Path) -> Recommender | None:
    """Return what answers with the best validation's parameters in the checkpoint; None without a validation."""
    valid, train = parts.valid if len(parts.valid) else None, counted(model, parts.train)
    found = CheckpointStore(folder / CHECKPOINT, identity_of(model, train=parts.train, valid=valid)).load()
    if found is None:
        return None
    graph = BipartiteGraph.from_interactions(train, model.device, weighted=True)
    scorer = model.best_scorer(graph, TrainingState(*found))
    if scorer is None:
        return None
    return Recommender(scorer.cpu(), train.user_ids, train.item_ids, train)
