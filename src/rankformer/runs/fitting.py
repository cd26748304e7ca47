"""Fit a model: validation, training log and checkpoints put around what the model learns."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.data.parts import Parts
from rankformer.errors import ConfigError, IgnoredWeightsWarning, RunFolderError
from rankformer.evaluation.evaluator import item_counts, ranks_of
from rankformer.evaluation.metrics import parse_metrics
from rankformer.evaluation.validator import make_validator, make_weigher
from rankformer.files import locked
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.collectives import Ranks
from rankformer.runs.checkpoint import CHECKPOINT, CheckpointStore, Span, remove_checkpoint
from rankformer.runs.manifest import is_run
from rankformer.runs.ownership import check_ours
from rankformer.runs.training_log import LOG, TrainingLog
from rankformer.scoring.base import Scorer
from rankformer.scoring.recommender import Recommender
from rankformer.settings import ModelSettings
from rankformer.training.context import Event, FitContext, TrainingState, WarmStart

TrainingData = Interactions  # what models learn from
interactions_of = Interactions.parts_of
ItemData = Items  # what models may be told about items


class Learner(Protocol):
    """A model as fitting sees it: `rankformer.models.base.Model` is one, and documents each part."""

    name: ClassVar[str]
    on_ranks: bool
    uses_weights: ClassVar[bool]
    most_validation_users: ClassVar[int | None]
    device: torch.device
    log: list[Event]

    @property
    def settings(self) -> ModelSettings: ...

    @property
    def searched(self) -> set[str]: ...

    @property
    def recommender(self) -> Recommender: ...

    @property
    def fit(self) -> Callable[..., Any]: ...

    @property
    def save(self) -> Callable[..., None]: ...

    @property
    def use_items(self) -> Callable[[Items], Any]: ...

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer: ...

    def choices(self) -> dict[str, Any]: ...

    @property
    def refitted(self) -> Callable[..., Any]: ...

    @property
    def updated(self) -> Callable[..., Any]: ...

    def best_scorer(self, graph: BipartiteGraph, state: TrainingState) -> Scorer | None: ...


class _Checkpoints:
    """Checkpoints that know how much of the training log belongs to them."""

    def __init__(self, store: CheckpointStore, log: TrainingLog) -> None:
        self.store, self.log = store, log

    def save(self, epoch: int, state: TrainingState) -> None:
        """Keep the state, once all events before it are on disk."""
        self.store.save(epoch, state.tensors, {**state.numbers, "log_events": self.log.sync()})


def fit(
    model: Learner,
    train: TrainingData,
    valid: TrainingData | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    choices: Mapping[str, Any] | None = None,
    warm: WarmStart | None = None,
) -> tuple[Recommender, list[Event]]:
    """Return the recommender that a model learns, and the training log; `Model.fit` has the arguments."""
    note_weights(model, train)
    ranks, parts = ranks_of(train), (train, valid)
    check_ranks(model, ranks)
    train, valid = counted(model, train), valid if valid is not None and ranks.total(len(valid))[0] else None
    metric = getattr(model.settings, "metric", "ndcg@20")
    parse_metrics(metric)  # a mistake is found before the work, not after it
    with nullcontext() if folder is None or ranks.rank else locked(folder):
        checkpoints, state = None, None
        if folder is not None:
            chosen = {} if choices is None else {"choices": dict(choices)}
            identity = identity_of(model, train=parts[0], valid=None if valid is None else parts[1]) | chosen
            store = CheckpointStore(folder / CHECKPOINT, identity, ranks, *rows_of(train, ranks))
            with ranks.together():
                if ranks.rank == 0:
                    check_ours(folder)
                    if is_run(folder):
                        raise RunFolderError(
                            f"{folder} already holds a finished run; choose another folder, or remove it"
                        )
                    if not resume:
                        remove_checkpoint(store.folder)
            with ranks.together():
                found = store.load()
            store.begin()
            state = None if found is None else TrainingState(*found)
        log = TrainingLog(None if folder is None else folder / LOG, on_event, writes=ranks.rank == 0)
        if folder is not None:
            log.rewind(state.numbers["log_events"] if state else 0)
            checkpoints = _Checkpoints(store, log)
        validate = None if valid is None else make_validator(train, valid, metric, model.most_validation_users)
        weigh = None if valid is None else make_weigher(train, valid, model.settings.seed)
        graph = BipartiteGraph.from_interactions(train, model.device, weighted=True)
        scorer = model.learn(graph, FitContext(validate, log.append, checkpoints, state, choices, warm, weigh)).cpu()
    known = train if valid is None else Parts(train, valid, valid.rows(np.zeros(0, dtype=np.int64))).whole
    counts = None if train.block is None else item_counts(train, train.weights).astype(np.float64)
    return Recommender(scorer, train.user_ids, train.item_ids, train, known=known, item_counts=counts), log.events


def check_ranks(model: Learner, ranks: Ranks) -> None:
    """Refuse a model that cannot be fitted by several ranks."""
    if ranks.alone:
        return
    settings = model.settings.hyperparameters()
    in_batches = settings.get("loss", "bpr") != "bpr" and settings.get("batch_size") is not None
    odd = [f"loss={settings['loss']} in batches"] if in_batches else []
    by_users = settings.get("batch_by") == "users" and settings.get("batch_size") is not None
    odd += ["batch_by=users"] if by_users else []
    odd += ["layer=softmax"] if settings.get("layer") == "softmax" else []
    if not model.on_ranks or odd:
        what = " with ".join([model.name, *odd])
        raise ConfigError(f"{what} runs on one rank only; use one rank, or another method or setting")


def rows_of(train: TrainingData, ranks: Ranks) -> tuple[tuple[Span, Span] | None, tuple[int, int]]:
    """Return the users and the items whose rows this rank keeps, and how many there are of each."""
    if train.block is None:
        return None, (train.num_users, train.num_items)
    first, own = train.block.first_user, ranks.slice_of(train.num_items)
    sizes = train.block.num_users, train.num_items
    return ((first, first + train.num_users), (own.start, own.stop)), sizes


def counted(model: Learner, train: TrainingData) -> TrainingData:
    """Return the training interactions with what each counts in this model as its weight, None where all count 1.

    So the history of a run has weights if its scorer was made with them.
    """
    weights = train.confidence if model.uses_weights else None
    if weights is train.weights and train.half_life is None:
        return train  # whose fingerprint is perhaps known
    decays = model.uses_weights and train.half_life is not None and train.times is not None and len(train)
    counted_at = float(train.times.max()) if decays and train.times is not None else train.counted_at
    return replace(train, weights=weights, half_life=None, counted_at=counted_at)


def note_weights(model: Learner, train: TrainingData) -> str | None:
    """Return one line on the weights that a model will use, None where there are none; warn if it cannot use them."""
    weights = train.confidence
    if weights is None or not len(weights):
        return None
    found = f"weights from {weights.min():.3g} to {weights.max():.3g}"
    if model.uses_weights:
        return f"{found} count in {model.name}"
    line = f"{found} are ignored by {model.name}: it counts every interaction alike"
    warnings.warn(line, IgnoredWeightsWarning, stacklevel=4)
    return None


def identity_of(model: Learner, **parts: Interactions | None) -> dict[str, Any]:
    """Return what must be equal for a training to be continued: model, settings, seed and data."""
    fingerprints = {name: None if part is None else part.fingerprint for name, part in parts.items()}
    settings = {"settings": model.settings.hyperparameters(), "seed": model.settings.seed}
    return {"model": model.name, **settings, **fingerprints}
