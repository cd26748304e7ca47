"""What is shown while a search runs: a bar on a terminal, a line per trial anywhere else; always on stderr."""

import sys
from typing import TYPE_CHECKING, Any, Self

from rankformer.cli.output import console
from rankformer.cli.progress import on_terminal

if TYPE_CHECKING:
    from rankformer.tuning.objective import Trial
    from rankformer.tuning.study import Study


class TuningProgress:
    """Shows a search that ends with `count` trials: tell it of the study, of each event and of each trial."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.bar = _bar() if on_terminal() else None
        self.best = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
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
            print(f"{done} of {self.count} trials are there already", file=sys.stderr, flush=True)

    def note_event(self, event: dict[str, Any]) -> None:
        """Show how far the running trial is."""
        if self.bar is not None and "epoch" in event:
            self.bar.update(self.task, status=f"epoch {event['epoch']}  {self.best}")

    def note_trial(self, trial: "Trial", study: "Study") -> None:
        """Show a trial that has finished."""
        self._note_best(study)
        if self.bar is not None:
            self.bar.update(self.task, completed=len(study.trials), status=self.best)
            return
        result = f"failed: {trial.problem}"
        if trial.value is not None:
            mark = " (best)" if trial is study.best else " (pruned)" if trial.state == "pruned" else ""
            result = f"{study.objective.metric} {trial.value:.4f}{mark}"
        settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        position = f"trial {trial.number} ({trial.number + 1}/{self.count})"
        print(position, result, f"{trial.seconds:.1f} s", settings, sep="  ", file=sys.stderr, flush=True)

    def _note_best(self, study: "Study") -> None:
        if study.best is not None:
            self.best = f"best {study.objective.metric} {study.best.value:.4f} in trial {study.best.number}"


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("trial"), MofNCompleteColumn(), BarColumn(bar_width=20), TextColumn("{task.fields[status]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True)
