"""`rankformer tune`: search good settings of a model on the validation part of a log."""

import math
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.model_options import (
    CallbackOption,
    DeviceOption,
    ModelOption,
    ThreadsOption,
    TrackOption,
    build_model,
    tracking_options,
)
from rankformer.cli.output import JsonFlag, console, option, show, show_json, show_note, show_table
from rankformer.cli.progress import Heartbeat, busy, on_terminal
from rankformer.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from rankformer.models.base import Model
    from rankformer.tuning.objective import Trial
    from rankformer.tuning.space import Space
    from rankformer.tuning.study import Study

DEFAULT_TRIALS = 20
_NOT_PART_OF_A_SEARCH = ("data", "model", "out", "timeout", "device", "threads", "json", "storage", "track", "callback")


@takes_data_options
def tune(
    context: typer.Context,
    data: DataArgument,
    model: ModelOption = None,
    trials: Annotated[
        int | None, option("N", "Trials in all, with those of an earlier call. Default: 20.", min=1)
    ] = None,
    budget: Annotated[
        str | None, option("TIME", "Search the few settings that matter most, in 60s, 5m or 1h altogether.")
    ] = None,
    out: Annotated[
        Path | None, option("DIR", "Folder of the search. Default: runs/tune/<data>/<model>.", "--out")
    ] = None,
    space: Annotated[
        Path | None, option("FILE", "TOML file with what to search, in place of the model's space.")
    ] = None,
    assignments: Annotated[
        list[str] | None, option("KEY=VALUE", "Fix a setting in all trials; may be repeated.", "--set")
    ] = None,
    epochs: Annotated[int | None, option("N", "Most epochs of a trial.", min=1)] = None,
    timeout: Annotated[
        float | None, option("SECONDS", "Stop after this long; the same command continues.", min=0)
    ] = None,
    seed: Annotated[int, option("N", "Decides the trials and every training.", min=0)] = 0,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    storage: Annotated[
        str | None, option("URL", "Keep the trials in this database as well: sqlite:///FILE, postgresql://...")
    ] = None,
    track: TrackOption = None,
    callback: CallbackOption = None,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Search good settings on DATA and write the best as a configuration for `rankformer train`.

    The first trial is the model's defaults; trials that fall behind are stopped early. Settings are chosen on the
    valid part; the test part is not looked at. A search that was cut off continues with the same command.

    With --budget a short ladder of values is searched by successive halving: many cheaper fits, then whole ones of the
    best.

    Examples:
        rankformer tune demo --model mf --trials 10 --epochs 100
        rankformer tune clicks.csv --model ials --budget 60s
        rankformer tune epinions --model lightgcn --trials 30 --set embedding_dim=64 --out runs/tune/epinions
        rankformer tune clicks.csv --space space.toml --timeout 3600
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"tuning needs optuna ({error}); install it with: pip install 'rankformer[tune]'") from error
    tracking = tracking_options(track, callback)
    quick = None if budget is None else _quick_budget(budget, trials, space, timeout)
    count = None if quick is not None else trials or DEFAULT_TRIALS
    deadline = None if timeout is None else time.monotonic() + timeout
    # Built once here, so that a wrong device or setting is not a trial's failure.
    untrained = build_model({}, model, assignments or (), seed, device)
    method = type(untrained)
    fixed, searched = _fixed_and_searched(untrained, space, assignments or [], epochs, quick is not None)
    source = data_source(data, options)
    folder = out or Path("runs") / "tune" / source.name / method.name
    from rankformer.evaluation.metrics import parse_metrics
    from rankformer.tracking.tracked import tracked
    from rankformer.tuning.objective import Objective, TuningData
    from rankformer.tuning.report import CONFIG, write_reports
    from rankformer.tuning.study import open_study

    with busy(f"reading {source.source}"):
        parts = source.load()
    # Of the test part only its hash goes in, to name the split.
    seen = TuningData(source.name, parts.fingerprint, parts.train, parts.valid)
    commands = search_command(context, model or method.name), training_command(data, folder, CONFIG)
    described = source.model_dump(mode="json", exclude_defaults=True, exclude={"source"})
    said = {"model": method.name, "data": source.name, "data_fingerprint": parts.fingerprint, "seed": seed, **fixed}
    with TuningProgress(count) as progress:

        def follow(event: dict[str, Any]) -> None:
            progress.note_event(event)
            tell({**event, "trial": len(study.trials)})

        aim = Objective(method, seen, fixed, seed, folder, device, follow, deadline)
        parse_metrics(aim.metric)
        with (
            open_study(aim, searched, storage) as study,
            tracked(**tracking, name=folder.resolve().name, folder=folder, settings=said) as tell,
        ):
            progress.begin(study)
            for known in study.trials:
                tell({"event": "tuned", "metric": aim.metric, **known.to_json()})

            def note(trial: Any) -> None:
                write_reports(study, commands, described)
                progress.note_trial(trial, study)
                tell({"event": "tuned", "metric": aim.metric, **trial.to_json()})

            try:
                if quick is not None:
                    finished = study.quick_search(quick, note)
                else:
                    finished = study.search(count or 0, note)
            except KeyboardInterrupt:
                raise Interrupted(_how_to_continue(study, count)) from None
            best = {} if study.best is None else {aim.metric: study.best.value}
            tell({"event": "end", "part": "valid", "metrics": best, "run": str(folder.resolve())})
    _show_outcome(study, finished, count, commands[1], json)


def _fixed_and_searched(
    model: "Model", space: Path | None, assignments: Sequence[str], epochs: int | None, quick: bool
) -> "tuple[dict[str, Any], Space]":
    """Return the settings that stay the same and those that vary."""
    from rankformer.tuning.space import ladder_of, read_space, space_of

    settings, method = model.settings.hyperparameters(), type(model)
    fixed = {key: settings[key] for key in (text.partition("=")[0].strip() for text in assignments)}
    searched = {} if quick else space_of(method) if space is None else read_space(space, method)
    if space is not None and fixed.keys() & searched.keys():
        name = min(fixed.keys() & searched.keys())
        raise ConfigError(f"{name} is fixed by --set and searched by {space}; leave one of them out")
    searched = {name: dimension for name, dimension in searched.items() if name not in fixed}
    if not searched and not quick:
        what = "every setting that is searched is fixed by --set" if fixed else "it has no settings to search"
        raise ConfigError(f"there is nothing to tune for {model.name}: {what}; choose another --model or --space")
    if epochs is not None:
        if "epochs" not in settings or "epochs" in searched:
            reason = f"{space} searches them" if "epochs" in searched else f"{model.name} has none"
            raise ConfigError(f"--epochs {epochs}: {reason}; leave it out")
        fixed["epochs"] = min(epochs, settings["epochs"])
    if quick:
        searched = ladder_of(method, fixed)
        if not searched:
            what = "has no ladder of values" if not method.ladder else "has all of its ladder fixed by --set"
            raise ConfigError(f"{model.name} {what}, and --budget searches nothing else; leave --budget out")
    return fixed, searched


def _quick_budget(budget: str, trials: int | None, space: Path | None, timeout: float | None) -> float:
    """Return the seconds of a quick search."""
    from rankformer.settings import seconds_of

    for flag, value in (("--trials", trials), ("--space", space), ("--timeout", timeout)):
        if value is not None:
            raise ConfigError(f"--budget and {flag} contradict each other; use one of them")
    seconds = seconds_of(budget)
    if not 0 < seconds < math.inf:
        raise ConfigError(f"--budget {budget}: a search needs more than 0 seconds; write for example 60s or 5m")
    return seconds


def _how_to_continue(study: "Study", count: int | None) -> str:
    folder, done = study.objective.folder, len(study.trials)
    if count is None:
        return f"{done} trials are in {folder}; the same command continues, after its whole time with a larger --budget"
    return f"{done} of {count} trials are in {folder}; run the same command to continue"


def _show_outcome(study: "Study", finished: bool, count: int | None, training: str, json: bool) -> None:
    drawn = False
    if study.trials:
        from rankformer.tuning.plot import draw

        with busy("drawing"):
            drawn = draw(study)
        if not drawn:
            show_note("no picture was drawn: matplotlib is not installed (pip install 'rankformer[plots]')")
    if study.trials and study.best is None:
        raise TrainingError(
            f"none of {len(study.trials)} trials is complete, see {study.objective.folder / 'trials.csv'}; "
            f"the first: {study.trials[0].problem or study.trials[0].state}"
        )
    if json:
        from rankformer.tuning.report import document

        show_json(document(study, finished))
        return
    if not finished:
        show_note(f"the time is up: {_how_to_continue(study, count)}")
    if study.trials:
        _show_trials(study, drawn)
        show(f"train:  {training}")


def _show_trials(study: "Study", drawn: bool) -> None:
    from rankformer.tuning.report import CONFIG, PICTURE, TABLE, relative_difference

    aim, best = study.objective, study.best
    assert best is not None
    show(f"{aim.method.name} on {aim.data.name}: {len(study.trials)} trials, seed {aim.seed}")
    rows = [
        (
            f"{'* ' if trial is best else ''}{trial.number}",
            trial.state,
            trial.value,
            trial.epoch,
            f"{trial.seconds:.1f}",
            # In one column, since a column each would not fit a terminal.
            "  ".join(f"{name}={_plain(value)}" for name, value in trial.settings.items()),
        )
        for trial in study.trials
    ]
    headings = ("trial", "state", aim.metric, "epoch", "seconds", "settings")
    show_table(headings, rows, numbers=("trial", aim.metric, "epoch", "seconds"))
    gain = relative_difference(study)
    beside = "" if gain is None else f", {100 * gain:+.1f}% over the defaults"
    show(f"best: trial {best.number} with validation {aim.metric} {best.value:.4f}{beside}")
    show(f"written to {aim.folder}: {CONFIG}, {TABLE}" + (f", {PICTURE}" if drawn else ""))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def search_command(context: typer.Context, model: str) -> str:
    """Return the command that does the running search again, with the flags that were given."""
    from rankformer.data.readers.sql import redact

    words = ["tune", redact(context.params["data"]), "--model", model]
    for flag in context.command.params:
        value = context.params.get(flag.name or "")
        if flag.name in _NOT_PART_OF_A_SEARCH or value is None:
            continue
        if isinstance(value, bool):
            words.append((flag.opts if value else flag.secondary_opts)[0])
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [flag.opts[0], str(each)]
    return _line(words)


def training_command(data: str, folder: Path, configuration: str) -> str:
    """Return the command that trains with the configuration in the folder of a search."""
    from rankformer.data.readers.sql import redact

    return _line(["train", redact(data), "--out", str(folder / "run"), "--config", str(folder / configuration)])


def _line(words: list[str]) -> str:
    # A line end inside a name would end the comment that the line stands in.
    return shlex.join(["rankformer", *words]).replace("\n", " ")


class TuningProgress:
    """Shows on stderr a search that ends with `count` trials: a bar on a terminal, a line per trial anywhere else.

    Of a quick search the number is not known before: None.
    """

    def __init__(self, count: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        status = TextColumn("{task.fields[status]}")
        columns = (TextColumn("trial"), MofNCompleteColumn(), BarColumn(bar_width=20), status, TimeElapsedColumn())
        self.bar = Progress(*columns, console=console(stderr=True), transient=True)
        self.task = self.bar.add_task("tuning", total=count, status="")
        self.count, self.best, self.watched, self.doing = count, "", on_terminal(), "first trial"
        self.heartbeat = Heartbeat(lambda: self.doing)  # off a terminal

    def __enter__(self) -> Self:
        if not self.watched:
            self.heartbeat.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.watched:
            self.bar.stop()
        else:
            self.heartbeat.__exit__(*problem)

    def begin(self, study: "Study") -> None:
        """Show a search as far as it has come."""
        self._show_best(study)
        if self.watched:
            self.bar.start()
        elif study.trials:
            known = len(study.trials) if self.count is None else f"{len(study.trials)} of {self.count}"
            print(f"{known} trials are there already", file=sys.stderr, flush=True)

    def note_event(self, event: dict[str, Any]) -> None:
        """Show how far the running trial is."""
        if "epoch" in event:
            self.doing = f"trial: epoch {event['epoch']}"
            self.bar.update(self.task, status=f"epoch {event['epoch']}  {self.best}")

    def note_trial(self, trial: "Trial", study: "Study") -> None:
        """Show a trial that has finished."""
        self._show_best(study)
        if self.watched:
            return
        self.doing = f"trial {trial.number + 1}"
        result = f"failed: {trial.problem}"
        if trial.value is not None:
            mark = " (best)" if trial is study.best else f" ({trial.state})" if trial.state != "complete" else ""
            result = f"{study.objective.metric} {trial.value:.4f}{mark}"
        settings = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        position = f"trial {trial.number}" + ("" if self.count is None else f" ({trial.number + 1}/{self.count})")
        print(position, result, f"{trial.seconds:.1f} s", settings, sep="  ", file=sys.stderr, flush=True)

    def _show_best(self, study: "Study") -> None:
        if study.best is not None:
            self.best = f"best {study.objective.metric} {study.best.value:.4f} in trial {study.best.number}"
        self.bar.update(self.task, completed=len(study.trials), status=self.best)
