"""How far a fit has come: a bar where someone is watching, plain lines anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from rankformer.training.context import Event

if TYPE_CHECKING:
    from rich.console import Console

OnEvent = Callable[[Event], None]


@contextmanager
def training_progress(
    settings: Any, validates: bool, *, watched: bool, console: "Console", to_stdout: bool = False
) -> Iterator[OnEvent | None]:
    """Yield a function that shows the events of a training, of a blend or of quick tuning; None for other methods.

    Where someone is `watching` it moves a bar, or a line that says which trial is at work. Elsewhere it prints a line
    per validation, on stderr unless `to_stdout`; without a validation part (`validates`), and in a refit, it does so at
    the epochs where they would be.
    """
    stream = sys.stdout if to_stdout else sys.stderr
    if not hasattr(settings, "epochs"):
        if not hasattr(settings, "tune"):
            yield None
            return
        with console.status("fitting") if watched else nullcontext() as line:
            yield partial(_show_member, settings, None if line is None else line.update, stream)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(bar_width=20))
    status = TextColumn("{task.fields[status]}")
    bar = Progress(*columns, status, TimeElapsedColumn(), console=console, transient=True)
    task = bar.add_task("epoch", total=settings.epochs, status="")
    metric, loss, best = settings.metric, "", ""

    def show_event(event: Event) -> None:
        nonlocal loss, best
        if "epoch" not in event:  # of the search before a training
            describe = (lambda text: bar.update(task, description=text)) if watched else None
            _show_member(settings, describe, stream, event)
            return
        epoch, validation, refit = event["epoch"], event["event"] == "validation", event.get("refit")
        last = settings.epochs if refit is None else refit.get("epochs", settings.epochs)
        label = "epoch" if refit is None else "refit epoch"
        measured = f"{metric} {event[metric]:.4f}" if validation else ""
        if not validation:
            loss = f"loss {event['loss']:.4f}"
        elif event["best"]:
            best = f"best {measured} at {epoch}"
        is_due = epoch % settings.validate_every == 0 or epoch == last
        if watched:
            speed = bar.tasks[0].speed
            parts = [loss, best, f"{speed:.1f} it/s" if speed else ""]
            bar.update(task, completed=epoch, total=last, description=label, status="  ".join(filter(None, parts)))
        elif validation or ((refit is not None or not validates) and is_due):
            measured += " (best)" if validation and event["best"] else ""
            parts = [f"{label} {epoch}/{last}", loss, measured, f"{event['seconds']:.1f} s"]
            print("  ".join(filter(None, parts)), file=stream, flush=True)

    with bar if watched else nullcontext():
        yield show_event


def step_of(settings: Any, event: Event) -> str | None:
    """Return what a fit is doing once it has told of an event; None where the event does not say."""
    if hasattr(settings, "epochs") and "epoch" in event:
        refit = event.get("refit")
        last = settings.epochs if refit is None else refit.get("epochs", settings.epochs)
        return f"{'training' if refit is None else 'refit'}: epoch {event['epoch']}/{last}"
    fitting = f"fitting {event.get('member')}{_changes(event)}"
    return {"fitting": fitting, "weighing": "choosing weights on the validation part"}.get(event["event"])


def _show_member(settings: Any, update: Callable[[str], None] | None, stream: TextIO, event: Event) -> None:
    """Show what a blend or quick tuning is doing: by `update`, or as a line for each finished member or trial."""
    kind, member = event["event"], event.get("member", "")
    doing = step_of(settings, event)
    if kind == "trial":
        doing = f"{member}{_changes(event)}: {settings.metric} {event['value']:.4f}"
    elif kind == "refused":
        doing = f"{member} is left out: {event['reason']}"
    if doing is None:
        return
    if update is not None:
        update(doing)
    elif kind != "fitting":
        print(f"{doing}  {event['seconds']:.1f} s", file=stream, flush=True)


def _changes(event: Event) -> str:
    return "".join(f" {name}={value}" for name, value in event.get("settings", {}).items())


@contextmanager
def fit_progress(
    settings: Any, validates: bool, verbose: bool | None, on_event: OnEvent | None
) -> Iterator[OnEvent | None]:
    """Yield what a fit calls with each event: `on_event`, and a display in a terminal or a notebook.

    Without a word on `verbose` progress is shown where someone is watching, unless `on_event` follows already.
    """
    if verbose is False or (verbose is None and on_event is not None):
        yield on_event
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    notebook, terminal = console.is_jupyter, sys.stderr.isatty()
    if verbose is None and not (notebook or terminal):
        yield on_event
        return
    watched = find_spec("ipywidgets") is not None if notebook else terminal  # rich needs it to redraw in a notebook
    with training_progress(settings, validates, watched=watched, console=console, to_stdout=notebook) as show_event:

        def both(event: Event) -> None:
            for tell in (show_event, on_event):
                if tell is not None:
                    tell(event)

        yield both
