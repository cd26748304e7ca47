"""What is shown while a command works: a bar on a terminal, plain lines anywhere else; always on stderr."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

from rankformer.cli.output import console, printable

FIRST_LINE_AFTER = 3.0  # seconds without any output, from when Python has started the program
_STACK = 2**19  # bytes; the usual 8 MB are much where memory is short
SHORT = 0.5  # seconds of a step that is not told, however long it was silent before


def on_terminal() -> bool:
    """Whether a person is watching stderr."""
    return sys.stderr.isatty()


def busy(doing: str) -> AbstractContextManager[Any]:
    """Return a context that shows what is being done: at once on a terminal, elsewhere if it takes long."""
    return console(stderr=True).status(doing) if on_terminal() else Heartbeat(lambda: doing)


class Heartbeat:
    """Prints a line on stderr when nothing was shown for a while, and then ever more rarely.

    One is open for the whole command, others for its steps: the innermost is told, by the one thread of the outermost.

    Attributes:
        last_line: when the last such line was printed, or the command began.
        open: those that have begun and not ended, the innermost last.
        doing: what is being done, as it stands now.
        wait: seconds until the next line; each wait is twice the one before, up to a minute.
    """

    last_line = time.monotonic()
    open: ClassVar[list["Heartbeat"]] = []

    def __init__(self, doing: Callable[[], str], wait: float | None = None) -> None:
        self.doing, self.wait = doing, FIRST_LINE_AFTER if wait is None else wait
        self.begin = time.monotonic()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._beat, args=[min(SHORT / 2, self.wait)], daemon=True)

    def __enter__(self) -> None:
        if not Heartbeat.open:
            usual = threading.stack_size(_STACK)
            self.thread.start()
            threading.stack_size(usual)
        Heartbeat.open.append(self)

    def __exit__(self, *problem: object) -> None:
        Heartbeat.open.remove(self)
        if not Heartbeat.open:
            self.done.set()
            self.thread.join()

    @staticmethod
    def leave_to_others() -> None:
        """Print no more: processes that this one starts tell what they do."""
        for each in Heartbeat.open:
            each.done.set()

    def _beat(self, pause: float) -> None:
        while not self.done.wait(pause):
            now = time.monotonic()
            for step in Heartbeat.open[-1:]:
                if now >= max(Heartbeat.last_line + step.wait, step.begin + min(SHORT, step.wait)):
                    step.wait, Heartbeat.last_line = min(2 * step.wait, 60.0), now
                    print(f"{printable(step.doing())} ... {now - step.begin:.0f} s", file=sys.stderr, flush=True)


@contextmanager
def progress_of(
    settings: Any, validates: bool, tell: Callable[[dict[str, Any]], None] | None = None
) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yield the function that shows the events of a fit: see `training_progress`; a long step is told.

    Each event goes to `tell` as well.
    """
    from rankformer.runs.progress import step_of, training_progress

    watched = on_terminal()
    step = "training" if hasattr(settings, "epochs") else "fitting"
    with (
        training_progress(settings, validates, watched=watched, console=console(stderr=True)) as show_event,
        nullcontext() if watched else Heartbeat(lambda: step),
    ):

        def show_and_note(event: dict[str, Any]) -> None:
            nonlocal step
            if show_event is not None:
                step = step_of(settings, event) or step
                show_event(event)
            if tell is not None:
                tell(event)

        yield None if show_event is None and tell is None else show_and_note


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
