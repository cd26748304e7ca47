"""One trial: train with given settings, watch the validations, stop early when it is not worth going on.

Only the training and validation parts come here, so no trial can look at the test part.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError, RunFolderError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.base import Model
from rankformer.training.settings import TrainingSettings
from rankformer.training.trainer import Event
from rankformer.tuning.advice import Judge
from rankformer.tuning.trials import Trial

DEFAULT_METRIC = "ndcg@20"
RUNNING = "running"

# What a bad choice of settings can do; anything else is a mistake of ours and must be seen.
FAILURES = (TrainingError, ConfigError, MemoryError, torch.OutOfMemoryError)


class Pruned(Exception):
    """Raised inside a training whose trial has fallen behind, to end it."""


class TimeIsUp(Exception):
    """Raised inside a training to end it where it is; its checkpoint stays."""


@dataclass(frozen=True, eq=False)
class TuningData:
    """What trials see of the data: there is no test part in it.

    Attributes:
        name: what the data is called.
        fingerprint: of the whole split.
        train: pairs to learn from.
        valid: pairs that decide which settings are better.
    """

    name: str
    fingerprint: str
    train: Interactions
    valid: Interactions

    def __post_init__(self) -> None:
        if not len(self.valid):
            raise DataError(
                f"{self.name} has no validation part, and settings are chosen on it; use --parts 0.7,0.1,0.2"
            )


@dataclass(frozen=True)
class Objective:
    """The value of settings.

    Attributes:
        method: the model.
        data: training and validation part.
        fixed: settings that are the same in all trials.
        seed: of every training.
        folder: for the log and checkpoint of the trial that runs.
        device: where to compute.
        on_event: told of each epoch and validation.
        deadline: `time.monotonic()` at which to stop, None for never.
    """

    method: type[Model]
    data: TuningData
    fixed: Mapping[str, Any]
    seed: int
    folder: Path
    device: str = "cpu"
    on_event: Callable[[Event], None] = lambda event: None
    deadline: float | None = None

    @cached_property
    def metric(self) -> str:
        """What is maximised."""
        return str(getattr(self.method.settings_class(**self.fixed), "metric", DEFAULT_METRIC))

    @property
    def time_is_up(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def run(self, settings: dict[str, Any], earlier: Sequence[Trial]) -> Trial:
        """Return the next trial after the earlier ones, trained with these settings.

        Raises:
            TimeIsUp: the deadline has passed; the same call goes on from the checkpoint.
        """
        number, started = len(earlier), time.perf_counter()
        watch = _Watch(self, earlier)
        try:
            model = self.method(seed=self.seed, device=self.device, **{**self.fixed, **settings})
            watch.begin(model, settings)
            self._fit(model, watch)
            trial = self._completed(number, settings, model)
        except Pruned:
            epoch = _best_epoch(watch.validations)
            trial = Trial(number, "pruned", settings, watch.validations[epoch], epoch, watch.validations)
        except FAILURES as problem:
            message = " ".join(str(problem).split()) or type(problem).__name__
            trial = Trial(number, "failed", settings, validations=watch.validations, problem=message)
        # A resumed training has seconds behind it that this process did not spend.
        return replace(trial, seconds=round(max(time.perf_counter() - started, watch.seconds), 3))

    def _fit(self, model: Model, watch: "_Watch") -> None:
        arguments: dict[str, Any] = {"run_folder": watch.folder, "on_event": watch}
        try:
            model.fit(self.data.train, self.data.valid, resume=True, **arguments)
        except (RunFolderError, json.JSONDecodeError):
            # A checkpoint that is damaged saves nothing; without it the trial ends the same, only later.
            shutil.rmtree(watch.folder, ignore_errors=True)
            model.fit(self.data.train, self.data.valid, resume=False, **arguments)

    def _completed(self, number: int, settings: dict[str, Any], model: Model) -> Trial:
        validations = _validations(model.log, self.metric)
        if isinstance(model.settings, TrainingSettings):
            epoch = _best_epoch(validations)
            return Trial(number, "complete", settings, validations[epoch], epoch, validations)
        # Without epochs there is nothing that a validation could have chosen.
        measured = evaluate(model, self.data.valid, metrics=[self.metric], mask="train")
        return Trial(number, "complete", settings, measured.metrics[self.metric])


@dataclass
class _Watch:
    """Follows one training by its events, and ends it when that is due.

    Attributes:
        objective: what the trial is for.
        earlier: the trials before it.
        validations: values by epoch, those from before a checkpoint that was resumed among them.
        seconds: that the training took so far, in all processes.
        folder: of its log and checkpoint.
        epochs: after which it ends anyway; 0 for methods without epochs, which have no checkpoints either.
    """

    objective: Objective
    earlier: Sequence[Trial]
    validations: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    folder: Path = Path()
    epochs: int = 0

    def begin(self, model: Model, settings: dict[str, Any]) -> None:
        """Prepare for a training; what another trial left behind is removed."""
        running = self.objective.folder / RUNNING
        self.folder = running / f"{len(self.earlier)}-{_short_hash(settings)}"
        for other in running.iterdir() if running.is_dir() else ():
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        if isinstance(model.settings, TrainingSettings):
            self.epochs = model.settings.epochs
            self.judge = Judge(self.earlier, model.settings.validate_every)
        self.begun = False

    def __call__(self, event: Event) -> None:
        self.objective.on_event(event)
        self.seconds = event["seconds"]
        if not self.epochs:
            return
        if not self.begun:
            self.begun, self.validations = True, self._before(event)
        if event["event"] == "validation":
            self.validations[event["epoch"]] = event[self.objective.metric]
            if event["epoch"] < self.epochs and self.judge.stops(self.validations):
                raise Pruned
        # After a validation its checkpoint is still to be written; the event of the next epoch has it behind it.
        elif self.objective.time_is_up:
            raise TimeIsUp

    def _before(self, event: Event) -> dict[int, float]:
        """Return the validations of a resumed training from before its checkpoint, which no event repeats."""
        lines = (self.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        earlier = [json.loads(line) for line in lines]
        return _validations([each for each in earlier if each["epoch"] < event["epoch"]], self.objective.metric)


def _best_epoch(validations: Mapping[int, float]) -> int:
    return max(validations, key=lambda epoch: validations[epoch])


def _validations(log: Sequence[Event], metric: str) -> dict[int, float]:
    return {event["epoch"]: event[metric] for event in log if event["event"] == "validation"}


def _short_hash(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
