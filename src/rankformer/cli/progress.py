"""What is shown while a command works: a bar on a terminal, plain lines anywhere else; always on stderr."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rankformer.cli.output import console

if TYPE_CHECKING:
    from rankformer.training.settings import TrainingSettings


def on_terminal() -> bool:
    """Whether a person is watching stderr."""
    return sys.stderr.isatty()


def busy(doing: str) -> AbstractContextManager[Any]:
    """Return a context that shows what is being done on a terminal, and nothing elsewhere."""
    return console(stderr=True).status(doing) if on_terminal() else nullcontext()


def progress_of(settings: Any, validates: bool) -> "AbstractContextManager[TrainingProgress | None]":
    """Return the display of a training with these settings; none for methods that are solved, which have no epochs."""
    return TrainingProgress(settings, validates) if hasattr(settings, "epochs") else nullcontext()


class TrainingProgress:
    """Shows the events of a training: call it with each of them."""

    def __init__(self, settings: "TrainingSettings", validates: bool) -> None:
        """Prepare for a training with these settings; without validations, lines come at the same epochs."""
        self.settings, self.validates = settings, validates
        self.loss = 0.0
        self.best: tuple[float, int] | None = None
        self.first: tuple[int, float] | None = None
        self.rate = 0.0
        self.bar = _bar() if on_terminal() else None

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("training", total=self.settings.epochs, status="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Take notice of an event."""
        if event["event"] == "epoch":
            self._note_epoch(event)
        elif event["event"] == "validation":
            self._note_validation(event)
        if self.bar is not None:
            self.bar.update(self.task, completed=event["epoch"], status=self._status())
        elif event["event"] == "validation" or (not self.validates and self._is_due(event["epoch"])):
            self._print_line(event)

    def _note_epoch(self, event: dict[str, Any]) -> None:
        self.loss = event["loss"]
        self.first = self.first or (event["epoch"], event["seconds"])
        seconds = event["seconds"] - self.first[1]
        self.rate = (event["epoch"] - self.first[0]) / seconds if seconds > 0 else 0.0

    def _note_validation(self, event: dict[str, Any]) -> None:
        if event["best"]:
            self.best = event[self.settings.metric], event["epoch"]

    def _is_due(self, epoch: int) -> bool:
        return epoch % self.settings.validate_every == 0 or epoch == self.settings.epochs

    def _status(self) -> str:
        parts = [f"loss {self.loss:.4f}"]
        if self.best is not None:
            parts.append(f"best {self.settings.metric} {self.best[0]:.4f} at {self.best[1]}")
        if self.rate:
            parts.append(f"{self.rate:.1f} it/s")
        return "  ".join(parts)

    def _print_line(self, event: dict[str, Any]) -> None:
        parts = [f"epoch {event['epoch']}/{self.settings.epochs}", f"loss {self.loss:.4f}"]
        if event["event"] == "validation":
            metric = self.settings.metric
            parts.append(f"{metric} {event[metric]:.4f}{' (best)' if event['best'] else ''}")
        print("  ".join([*parts, f"{event['seconds']:.1f} s"]), file=sys.stderr, flush=True)


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(bar_width=20), TextColumn("{task.fields[status]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True)


@contextmanager
def download_progress() -> Iterator[Any]:
    """Yield a function of (file name, bytes so far, bytes in all or None) that shows how far the files have come."""
    if not on_terminal():
        yield _DownloadLines()
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield report


class _DownloadLines:
    """Prints one line when a file begins."""

    def __init__(self) -> None:
        self.begun: set[str] = set()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        if name not in self.begun:
            self.begun.add(name)
            size = "" if total is None else f" ({total:,} bytes)"
            print(f"fetching {name}{size}", file=sys.stderr, flush=True)
