"""`tracked`: one stream of events, handed to trackers and to functions of one's own.

begin     name, settings, run (the folder)
...       the events of `fit`, as in the training log; those of a refit have `refit`, those inside a search `trial`
tuned     one finished trial of a search: number, state, settings, metric, value, validations, seconds
end       part (test, or valid for a search), metrics of it, run
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankformer.errors import ConfigError, UserError
from rankformer.tracking import TRACKERS
from rankformer.tracking.trackers import Numbers, Tracker

Event = dict[str, Any]
_PREFIXES = {"epoch": "train", "validation": "valid"}
_NOT_MEASURED = ("epoch", "seconds", "number")
_logger = logging.getLogger(__name__)


def tracker_class(name: str) -> type[Tracker]:
    """Return a tracker by its name, or say which there are and what to install."""
    if name not in TRACKERS:
        raise ConfigError(f"cannot track with {name!r}; expected one of {', '.join(TRACKERS)}")
    module, _, attribute = TRACKERS[name].partition(":")
    found: type[Tracker] = getattr(import_module(module), attribute)
    for needed in found.modules:
        if find_spec(needed) is None:
            raise ConfigError(f"--track {name} needs {needed}, which is missing: pip install 'rankformer[track]'")
    return found


def load_callback(name: str) -> Callable[[Event], None]:
    """Return the function called `package.module:function`, looked for in the working folder too.

    What it raises becomes a UserError that names it; a KeyboardInterrupt stops the training as Ctrl-C does.
    """
    module, colon, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        if not (module and colon):
            raise ValueError("expected package.module:function")
        function = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--callback {name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"--callback {name} is not a function; it must take one event, a dictionary")

    def call(event: Event) -> None:
        try:
            function(deepcopy(event))  # whatever it does to it
        except (Exception, SystemExit) as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"--callback {name} failed at the event {event['event']!r}: {what}; fix it, or leave it out"
            ) from error

    return call


@contextmanager
def tracked(
    trackers: Sequence[str] = (),
    callbacks: Sequence[Callable[[Event], None]] = (),
    *,
    name: str,
    folder: Path,
    settings: Mapping[str, Any],
    earlier: Callable[[], Sequence[Event]] | None = None,
) -> Iterator[Callable[[Event], None]]:
    """Yield the function to call with each event of a training or search: `fit(..., on_event=tell)`.

    A tracker that cannot begin is an error; one that fails later is left out with a warning, and training continues.
    A training that ends without the event `end` is marked as failed.

    Args:
        trackers: names of `TRACKERS`.
        callbacks: called with every event first.
        name: of the run.
        folder: the run folder.
        settings: hyperparameters, model, seed and data.
        earlier: gives the events of a training that is resumed, which are told before the first new one.
    """
    running: dict[str, Tracker] = {}
    told, ended = 0, False

    def tell(event: Event) -> None:
        nonlocal earlier, told, ended
        if earlier is not None:
            before, earlier = earlier(), None
            for each in before:
                if each != event:
                    tell(each)
        for callback in callbacks:
            callback(event)
        told, ended = told + 1, ended or event["event"] == "end"
        for label in list(running):
            _attempt(running, label, partial(_log, running[label], event, folder.resolve(), told))

    classes = {label: tracker_class(label) for label in trackers}
    for callback in callbacks:
        callback({"event": "begin", "name": name, "settings": dict(settings), "run": str(folder)})
    for label, kind in classes.items():
        try:
            running[label] = kind(name, settings, folder.resolve())
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise UserError(f"--track {label} cannot begin: {what}; fix it, or leave it out") from error
    try:
        yield tell
    finally:
        for label in [] if ended else list(running):
            _attempt(running, label, partial(running[label].close, {}, {}, failed=True))


def _attempt(running: dict[str, Tracker], label: str, action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        del running[label]
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        _logger.warning("%s stopped taking events and is left out: %s", label, what)


def _log(tracker: Tracker, event: Event, folder: Path, count: int) -> None:
    """Hand an event to a tracker as what it keeps: metrics at a step, a run of its own, or the end."""
    kind = event["event"]
    if kind == "end":
        metrics = {f"{event['part']}/{key}": value for key, value in event["metrics"].items()}
        tracker.close(metrics, {"run_folder": event["run"]})
    elif kind == "tuned":
        trial = type(tracker)(f"trial-{event['number']}", event["settings"], folder, tracker)
        for epoch, value in event["validations"]:
            trial.log({f"valid/{event['metric']}": value}, epoch)
        numbers = {} if event["value"] is None else {event["metric"]: event["value"]}
        tags = {"state": event["state"], "problem": event["problem"]}
        trial.close({**numbers, "seconds": event["seconds"]}, tags, failed=event["state"] == "failed")
        tracker.log(numbers, event["number"])
    elif "trial" not in event and (measured := numbers_of(event)):
        tracker.log(measured, event.get("epoch", count))


def numbers_of(event: Event) -> Numbers:
    """Return the metrics in an event, under names such as train/loss and valid/ndcg@20."""
    kind = event["event"]
    prefix = "refit" if "refit" in event else _PREFIXES.get(kind, kind)
    member = f"{event['member']}/" if "member" in event else ""
    return {
        f"{prefix}/{member}{key}": value
        for key, value in event.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and key not in _NOT_MEASURED
    }
