"""What is shown while a command works: a bar on a terminal, plain lines anywhere else; always on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rankformer.cli.output import console


def on_terminal() -> bool:
    """Whether a person is watching stderr."""
    return sys.stderr.isatty()


def busy(doing: str) -> AbstractContextManager[Any]:
    """Return a context that shows what is being done on a terminal, and nothing elsewhere."""
    return console(stderr=True).status(doing) if on_terminal() else nullcontext()


def progress_of(settings: Any, validates: bool) -> AbstractContextManager[Callable[[dict[str, Any]], None] | None]:
    """Return a context with the function that shows the events of a training: see `training_progress`."""
    from rankformer.runs.progress import training_progress

    return training_progress(settings, validates, watched=on_terminal(), console=console(stderr=True))


@contextmanager
def download_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function of (file name, bytes so far, bytes in all or None) that shows how far the files have come.

    Without a terminal it prints a line when a file begins.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar, watched, tasks = Progress(*columns, console=console(stderr=True)), on_terminal(), {}

    def report(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total)
            if not watched:
                size = "" if total is None else f" ({total:,} bytes)"
                print(f"fetching {name}{size}", file=sys.stderr, flush=True)
        bar.update(tasks[name], completed=done, total=total)

    with bar if watched else nullcontext():
        yield report
