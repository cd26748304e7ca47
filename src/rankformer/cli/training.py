"""Train, evaluate, save: what `train` and `demo` have in common."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankformer.cli.progress import TrainingProgress, busy
from rankformer.runs.folder import remove_checkpoint

if TYPE_CHECKING:
    from rankformer.data.interactions import Parts
    from rankformer.data.source import DataSource
    from rankformer.evaluation.evaluator import Evaluation
    from rankformer.models.base import Model
    from rankformer.training.trainer import Event


def fit_and_evaluate(
    model: "Model", parts: "Parts", folder: Path | None = None, resume: bool = False
) -> "Evaluation | None":
    """Train the model with progress shown; return its evaluation on the test part, None when that is empty."""
    from rankformer.evaluation.evaluator import evaluate

    with _progress_of(model, validates=len(parts.valid) > 0) as on_event:
        model.fit(parts.train, parts.valid, run_folder=folder, resume=resume, on_event=on_event)
    if not len(parts.test):
        return None
    with busy("evaluating"):
        return evaluate(model, parts.test, mask="train", seed=model.seed)


def save(
    model: "Model", folder: Path, source: "DataSource", parts: "Parts", evaluation: "Evaluation | None"
) -> dict[str, Any]:
    """Write the run with what is needed to load its data again, and drop the checkpoint; return that description."""
    data = {
        "source": source.absolute().model_dump(mode="json"),
        "name": source.name,
        "users": parts.train.num_users,
        "items": parts.train.num_items,
        "train_pairs": len(parts.train),
        "valid_pairs": len(parts.valid),
        "test_pairs": len(parts.test),
        "fingerprint": parts.fingerprint,
    }
    with busy("saving"):
        model.save(folder, data=data, evaluation=evaluation)
        remove_checkpoint(folder)
    return data


def course_of(log: "list[Event]") -> dict[str, Any]:
    """Return how a training went: epochs, the epoch of the best validation (the last without any), seconds."""
    epochs = [event for event in log if event["event"] == "epoch"]
    best = [event["epoch"] for event in log if event["event"] == "validation" and event["best"]]
    last = epochs[-1]["epoch"] if epochs else 0
    return {
        "epochs": last,
        "best_epoch": best[-1] if best else last,
        "seconds": log[-1]["seconds"] if log else 0.0,
    }


def _progress_of(model: "Model", validates: bool) -> AbstractContextManager[TrainingProgress | None]:
    from rankformer.training.settings import TrainingSettings

    settings = model.settings
    if not isinstance(settings, TrainingSettings):
        return nullcontext()
    return TrainingProgress(settings, validates)
