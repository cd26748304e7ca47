"""What is shown while a search runs: a bar on a terminal, a line per trial anywhere else; always on stderr."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rankformer.cli.output import console
from rankformer.cli.progress import on_terminal

if TYPE_CHECKING:
    from rankformer.training.trainer import Event
    from rankformer.tuning.study import Study
    from rankformer.tuning.trials import Trial


class TuningProgress:
    """Shows a search: tell it of the study, of each event and of each trial."""

    def __init__(self, count: int) -> None:
        """Prepare for a search that ends with so many trials."""
        self.count = count
        self.bar = _bar() if on_terminal() else None
        self.best = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def begin(self, study: "Study") -> None:
        """Show a search as far as it has come."""
        done = len(study.trials)
        self._note_best(study)
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("tuning", total=self.count, completed=done, status=self.best)
        elif done:
            _print_line(f"{done} of {self.count} trials are there already")

    def note_event(self, event: "Event") -> None:
        """Show how far the running trial is."""
        if self.bar is not None and "epoch" in event:
            self.bar.update(self.task, status=f"epoch {event['epoch']}  {self.best}")

    def note_trial(self, trial: "Trial", study: "Study") -> None:
        """Show a trial that has finished."""
        self._note_best(study)
        if self.bar is not None:
            self.bar.update(self.task, completed=len(study.trials), status=self.best)
        else:
            _print_line(_line(trial, study, self.count))

    def _note_best(self, study: "Study") -> None:
        if study.best is not None:
            self.best = f"best {study.objective.metric} {study.best.value:.4f} in trial {study.best.number}"


def _line(trial: "Trial", study: "Study", count: int) -> str:
    parts = [f"trial {trial.number} ({trial.number + 1}/{count})"]
    if trial.state == "failed":
        parts.append(f"failed: {trial.problem}")
    else:
        mark = {"complete": " (best)" if trial is study.best else "", "pruned": " (pruned)"}[trial.state]
        parts.append(f"{study.objective.metric} {trial.value:.4f}{mark}")
    parts.append(f"{trial.seconds:.1f} s")
    return "  ".join([*parts, " ".join(f"{name}={value}" for name, value in trial.settings.items())])


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trial"), MofNCompleteColumn(), BarColumn(bar_width=20), TextColumn("{task.fields[status]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True)
