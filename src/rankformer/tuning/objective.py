"""One trial: train with given settings, follow the validations, stop early when it is not worth continuing.

Only the training and validation parts come here, so no trial can look at the test part. Which settings to try next, and
which trainings to stop, is the business of `strategy`.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.errors import ConfigError, DataError, RunFolderError, TrainingError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.base import Model
from rankformer.models.trained import TrainedModel
from rankformer.runs.sequence import fit_and_evaluate
from rankformer.runs.training_log import TrainingHistory, history_of, read_log

DEFAULT_METRIC = "ndcg@20"
RUNNING = "running"

# What a bad choice of settings can do; anything else is a mistake of ours and must be seen.
FAILURES = (TrainingError, ConfigError, MemoryError, torch.OutOfMemoryError)

State = Literal["complete", "short", "pruned", "failed"]
Validations = Mapping[int, float]  # value by epoch


@dataclass(frozen=True)
class Trial:
    """One training of a search and its result.

    Attributes:
        number: its position in the search, from 0; number 0 is the model's defaults.
        state: complete; short, with fewer epochs or iterations in the first round of a quick search; pruned, stopped
            since others were better at the same epoch; or failed.
        settings: the values that were searched, by name.
        value: the best validation, None if it failed.
        epoch: the epoch of that validation, None for models without epochs.
        validations: value at each validation, by epoch.
        seconds: how long it took.
        problem: why it failed, empty otherwise.
    """

    number: int
    state: State
    settings: dict[str, Any]
    value: float | None = None
    epoch: int | None = None
    validations: Validations = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the trial as values that JSON can hold."""
        return {**asdict(self), "validations": [[epoch, value] for epoch, value in self.validations.items()]}

    @classmethod
    def from_json(cls, content: Any) -> "Trial":
        """Return the trial that `to_json` described, or raise a RunFolderError."""
        try:
            validations = {int(epoch): float(value) for epoch, value in content["validations"]}
            trial = cls(**{**content, "validations": validations})
        except (TypeError, ValueError, KeyError) as error:
            raise RunFolderError(f"a trial in it cannot be read ({error})") from error
        if trial.state not in get_args(State) or (trial.value is None) != (trial.state == "failed"):
            raise RunFolderError(f"trial {trial.number} in it is {trial.state} with the value {trial.value}")
        return trial


class Pruned(Exception):
    """Raised inside a training whose trial has fallen behind, to end it."""


class TimeIsUp(Exception):
    """Raised inside a training to end it where it is; its checkpoint stays."""


@dataclass(frozen=True, eq=False)
class TuningData:
    """What trials see of the data, beside its name and the fingerprint of the split: there is no test part in it."""

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
        method: the model class.
        data: training and validation part.
        fixed: settings that are the same in all trials.
        seed: of every training.
        folder: for the training log and checkpoint of the trial that runs.
        device: where to compute.
        on_event: called with each event of a training.
        deadline: `time.monotonic()` at which to stop, None for never.
    """

    method: type[Model]
    data: TuningData
    fixed: Mapping[str, Any]
    seed: int
    folder: Path
    device: str = "cpu"
    on_event: Callable[[dict[str, Any]], None] = lambda event: None
    deadline: float | None = None

    @cached_property
    def metric(self) -> str:
        """What is maximized."""
        return str(getattr(self.method.settings_class(**self.fixed), "metric", DEFAULT_METRIC))

    @property
    def search(self) -> dict[str, bool]:
        """What keeps a method that tunes itself from doing so: the search is here."""
        return {"tune": False} if "tune" in self.method.settings_class.model_fields else {}

    @property
    def time_is_up(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def run(
        self,
        number: int,
        settings: dict[str, Any],
        falls_behind: Callable[[Validations], bool] = lambda validations: False,
        *,
        short: bool = False,
    ) -> Trial:
        """Return the trial with these settings; a training that was cut off continues from its checkpoint.

        Args:
            number: of the trial.
            settings: over the fixed ones.
            falls_behind: whether to stop a training with these validations.
            short: whether it is a cheaper fit than the model's, which chooses what is worth a whole one.

        Raises:
            TimeIsUp: the deadline has passed; the same call continues.
        """
        started, folder = time.perf_counter(), self._folder_for(number, settings)
        history, epochs = TrainingHistory(), 0  # models without epochs are neither pruned nor stopped

        def follow(event: dict[str, Any]) -> None:
            nonlocal history
            self.on_event(event)
            if epochs and event["event"] == "validation":
                # The training log also has what came before a checkpoint that was resumed.
                history = history_of(read_log(folder))
                if history.epochs < epochs and falls_behind(history.validations):
                    raise Pruned
            # After a validation its checkpoint is still to be written; at the next epoch's event it is there.
            elif epochs and self.time_is_up:
                raise TimeIsUp

        state: State = "short" if short else "complete"
        value, epoch, problem = None, None, ""
        try:
            model = self.method(seed=self.seed, device=self.device, **{**self.search, **self.fixed, **settings})
            epochs = model.settings.epochs if isinstance(model, TrainedModel) else 0
            train, valid = self.data.train, self.data.valid
            parts = Parts(train, valid, valid.rows(np.arange(0)))
            history = fit_and_evaluate(
                model, parts, folder=folder, resume=True, on_event=follow, restart_if_damaged=True
            ).history
            if not epochs:
                value = evaluate(model, valid, metrics=[self.metric], mask="train").metrics[self.metric]
        except Pruned:
            state = "pruned"
        except FAILURES as error:
            state, problem = "failed", " ".join(str(error).split()) or type(error).__name__
        # Without epochs there is nothing that a validation could have chosen.
        validations = history.validations if epochs else {}
        if validations and state != "failed":
            epoch = max(validations, key=lambda epoch: validations[epoch])
            value = validations[epoch]
        # A resumed training has seconds behind it that this process did not spend.
        seconds = round(max(time.perf_counter() - started, history.seconds), 3)
        return Trial(number, state, settings, value, epoch, validations, seconds, problem)

    def _folder_for(self, number: int, settings: dict[str, Any]) -> Path:
        """Return the folder of a trial; what another trial left behind is removed."""
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        running = self.folder / RUNNING
        folder = running / f"{number}-{digest[:12]}"
        for other in running.iterdir() if running.is_dir() else ():
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return folder
