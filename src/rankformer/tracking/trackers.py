"""One class per tracker: TensorBoard, MLflow, Weights & Biases. Nothing leaves the machine unless its user says so."""

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

Numbers = Mapping[str, float]


class Tracker(ABC):
    """One run in a tracker; a trial of a search is a run below that of the search.

    Attributes:
        modules: what must be installed.
    """

    modules: ClassVar[tuple[str, ...]]

    @abstractmethod
    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path, parent: Self | None = None) -> None:
        """Begin a run.

        Args:
            name: of the run.
            settings: hyperparameters, model, seed and data.
            folder: the run folder, which is referred to and not written to.
            parent: the run that this one is a part of.
        """

    @abstractmethod
    def log(self, numbers: Numbers, step: int) -> None:
        """Keep the values of metrics at a step."""

    @abstractmethod
    def close(self, numbers: Numbers, tags: Mapping[str, str], failed: bool = False) -> None:
        """Keep the final metrics, and end the run."""


class TensorBoard(Tracker):
    """Event files in `tensorboard/NAME` beside the run folder, with the settings as text and as hyperparameters."""

    modules = ("tensorboard",)
    path: Path

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path, parent: Self | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.settings = settings
        self.path = folder.parent / "tensorboard" / name if parent is None else parent.path / name
        self.writer: Any = SummaryWriter(str(self.path))
        rows = "".join(f"\n| {key} | {_text(value)} |" for key, value in settings.items())
        self.writer.add_text("settings", f"| setting | value |\n|---|---|{rows}")

    def log(self, numbers: Numbers, step: int) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self, numbers: Numbers, tags: Mapping[str, str], failed: bool = False) -> None:
        from torch.utils.tensorboard.summary import hparams

        settings = {
            key: value if type(value) in (bool, int, float) else _text(value) for key, value in self.settings.items()
        }
        for summary in hparams(settings, dict(numbers)):  # type: ignore[no-untyped-call]
            self.writer.file_writer.add_summary(summary)
        self.log(numbers, 0)
        self.writer.add_text("end", "\n\n".join(f"{key}: {value}" for key, value in tags.items()) or "stopped")
        self.writer.close()


class MLflow(Tracker):
    """A run of MLflow, where MLFLOW_TRACKING_URI says: by default a database in the working folder.

    The experiment is MLFLOW_EXPERIMENT_NAME, by default `rankformer`.
    """

    modules = ("mlflow",)
    client: Any
    experiment: str
    run: str

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path, parent: Self | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        for noisy in ("alembic", "mlflow"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self.client, self.kinds = MlflowClient() if parent is None else parent.client, (Metric, Param, RunTag)
        tags = {} if parent is None else {"mlflow.parentRunId": parent.run}
        self.experiment = self._experiment() if parent is None else parent.experiment
        self.run = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id
        params = [Param(key, _text(value)[:500]) for key, value in settings.items()]
        self.client.log_batch(self.run, params=params, tags=[RunTag("run_folder", str(folder))])

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "rankformer")
        found = self.client.get_experiment_by_name(name)
        return str(self.client.create_experiment(name) if found is None else found.experiment_id)

    def log(self, numbers: Numbers, step: int) -> None:
        now, metric = int(time.time() * 1000), self.kinds[0]
        # MLflow's names may not hold an @.
        metrics = [metric(name.replace("@", "_at_"), value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def close(self, numbers: Numbers, tags: Mapping[str, str], failed: bool = False) -> None:
        self.log(numbers, 0)
        self.client.log_batch(self.run, tags=[self.kinds[2](key, value) for key, value in tags.items()])
        self.client.set_terminated(self.run, "FAILED" if failed else "FINISHED")


class WeightsAndBiases(Tracker):
    """A run in `wandb/`, offline unless WANDB_MODE says otherwise; `wandb sync` sends it later if wanted.

    The project is WANDB_PROJECT, by default `rankformer`.
    """

    modules = ("wandb",)
    group: str

    def __init__(self, name: str, settings: Mapping[str, Any], folder: Path, parent: Self | None = None) -> None:
        import wandb

        self.group = name if parent is None else parent.group
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "rankformer"),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=os.environ.get("WANDB_DIR") or os.getcwd(),
            group=self.group,
            name=name,
            config={**settings, "run_folder": str(folder)},
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )
        self.run.define_metric("*", step_metric="step")  # a refit counts its epochs from 1 again

    def log(self, numbers: Numbers, step: int) -> None:
        self.run.log({**numbers, "step": step})

    def close(self, numbers: Numbers, tags: Mapping[str, str], failed: bool = False) -> None:
        self.run.summary.update({**numbers, **tags})
        self.run.finish(exit_code=int(failed))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
