"""`rankformer tune`: search good settings of a method on the validation part of a log."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_note, show_table
from rankformer.cli.progress import busy
from rankformer.cli.tuning_command import commands_of
from rankformer.cli.tuning_progress import TuningProgress
from rankformer.errors import ConfigError, TrainingError
from rankformer.runs.configuration import chosen_model, chosen_settings, parse_assignment

if TYPE_CHECKING:
    from rankformer.data.source import DataSource
    from rankformer.models.base import Model
    from rankformer.tuning.objective import TuningData
    from rankformer.tuning.report import Commands
    from rankformer.tuning.space import Space
    from rankformer.tuning.study import Study

EXAMPLES = """Examples:

rankformer tune demo --model mf --trials 10 --epochs 100

rankformer tune epinions --model lightgcn --trials 30 --set embedding_dim=64 --out runs/tune/epinions

rankformer tune clicks.csv --space space.toml --timeout 3600
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="tune", help=help_of(tune), epilog=EXAMPLES)(takes_data_options(tune))


def tune(
    data: DataArgument,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The method; `rankformer models` lists them. Unsaid: rankformer.")
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trials in all, those of an earlier call among them.")
    ] = 20,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the search. Unsaid: runs/tune/<data>/<model>."),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with what to search, in place of the built-in space.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting in all trials; may be repeated."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most epochs of a trial.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after this long; the same command goes on.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Decides the trials and every training.")] = 0,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads on the CPU; all cores if unsaid.")
    ] = None,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Search good settings on DATA and write the best as a configuration for `rankformer train`.

    The first trial is the method's defaults; trials that fall behind are stopped early. Settings are chosen on the
    valid part; the test part is not looked at. A search that was cut off goes on with the same command.
    """
    from rankformer.models.registry import model_class
    from rankformer.tuning.advice import require_optuna

    deadline = None if timeout is None else time.monotonic() + timeout
    method = model_class(chosen_model({}, model))
    fixed, searched = _plan(method, space, assignments or [], epochs)
    method(seed=seed, device=device, **fixed)  # a wrong device or setting is no trial's failure
    require_optuna()
    source = data_source(data, options)
    search = {"trials": trials, "space": space, "set": assignments, "epochs": epochs, "seed": seed}
    folder = out or Path("runs") / "tune" / source.name / method.name
    _use_threads(threads)
    from rankformer.tuning.objective import Objective
    from rankformer.tuning.study import open_study

    seen = _data_without_test(source)
    with TuningProgress(trials) as progress:
        aim = Objective(method, seen, fixed, seed, folder, device, progress.note_event, deadline)
        _check_metric(aim.metric)
        with open_study(aim, searched) as study:
            commands = commands_of(method.name, folder, data, options, search)
            finished = _search(study, trials, progress, commands, source)
    _show_outcome(study, finished, trials, commands, json)


def _plan(
    method: "type[Model]", space: Path | None, assignments: Sequence[str], epochs: int | None
) -> "tuple[dict[str, Any], Space]":
    """Return the settings that stay the same and those that vary."""
    from rankformer.tuning.space import read_space, space_of

    settings = chosen_settings(method, {}, assignments)
    fixed = {key: settings[key] for key, _ in map(parse_assignment, assignments)}
    searched = space_of(method) if space is None else read_space(space, method)
    if space is not None and fixed.keys() & searched.keys():
        name = min(fixed.keys() & searched.keys())
        raise ConfigError(f"{name} is fixed by --set and searched by {space}; leave one of them out")
    searched = {name: dimension for name, dimension in searched.items() if name not in fixed}
    if not searched:
        what = "every setting that is searched is fixed by --set" if fixed else "it has no settings to search"
        raise ConfigError(f"there is nothing to tune for {method.name}: {what}; choose another --model or --space")
    if epochs is not None:
        if "epochs" not in settings or "epochs" in searched:
            reason = f"{space} searches them" if "epochs" in searched else f"{method.name} has none"
            raise ConfigError(f"--epochs {epochs}: {reason}; leave it out")
        fixed["epochs"] = min(epochs, settings["epochs"])
    return fixed, searched


def _data_without_test(source: "DataSource") -> "TuningData":
    """Return the training and validation part; of the test part only its hash goes in, to name the split."""
    from rankformer.tuning.objective import TuningData

    with busy(f"reading {source.source}"):
        parts = source.load()
    return TuningData(source.name, parts.fingerprint, parts.train, parts.valid)


def _check_metric(name: str) -> None:
    from rankformer.evaluation.metrics import parse_metrics

    parse_metrics(name)


def _use_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


def _search(study: "Study", count: int, progress: TuningProgress, commands: "Commands", source: "DataSource") -> bool:
    """Do the trials that are left, with the reports kept up to date; return whether all are done."""
    from rankformer.tuning.report import write_reports

    described = source.model_dump(mode="json", exclude_defaults=True, exclude={"source"})

    def note(trial: Any) -> None:
        write_reports(study, commands, described)
        progress.note_trial(trial, study)

    progress.begin(study)
    try:
        return study.search(count, note)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(study, count)) from None


def _how_to_go_on(study: "Study", count: int) -> str:
    folder, done = study.objective.folder, len(study.trials)
    return f"{done} of {count} trials are in {folder}; run the same command to go on"


def _show_outcome(study: "Study", finished: bool, count: int, commands: "Commands", json: bool) -> None:
    drawn = bool(study.trials) and _draw(study)
    if study.trials and study.best is None:
        raise TrainingError(
            f"none of {len(study.trials)} trials is complete, see {study.objective.folder / 'trials.csv'}; "
            f"the first: {study.trials[0].problem or study.trials[0].state}"
        )
    if json:
        show_json(_document(study, finished))
        return
    if not finished:
        show_note(f"the time is up: {_how_to_go_on(study, count)}")
    if study.trials:
        _show_trials(study, drawn)
        show(f"train:  {commands.training}")


def _draw(study: "Study") -> bool:
    from rankformer.tuning.plot import can_draw, draw

    if not can_draw():
        show_note("no picture was drawn: matplotlib is not installed (pip install 'rankformer[plots]')")
        return False
    with busy("drawing"):
        draw(study)
    return True


def _show_trials(study: "Study", drawn: bool) -> None:
    from rankformer.tuning.report import CONFIG, HEADINGS, PICTURE, TABLE, relative_difference, table_rows

    aim, best = study.objective, study.best
    assert best is not None
    show(f"{aim.method.name} on {aim.data.name}: {len(study.trials)} trials, seed {aim.seed}")
    headings = [*HEADINGS[:2], aim.metric, *HEADINGS[3:], "settings"]
    # In one column, since a column each would not fit a terminal.
    rows = [
        [_shown(name, row[name], best.number == row["trial"]) for name in HEADINGS]
        + ["  ".join(f"{name}={_plain(row[name])}" for name in study.space)]
        for row in table_rows(study)
    ]
    show_table(headings, rows, numbers=[each for each in headings if each not in ("state", "settings")])
    gain = relative_difference(study)
    beside = "" if gain is None else f", {100 * gain:+.1f}% beside the defaults"
    show(f"best: trial {best.number} with validation {aim.metric} {best.value:.4f}{beside}")
    show(f"written to {aim.folder}: {CONFIG}, {TABLE}" + (f", {PICTURE}" if drawn else ""))


def _shown(heading: str, value: Any, best: bool) -> Any:
    if heading == "trial":
        return f"{'* ' if best else ''}{value}"
    return f"{value:.1f}" if heading == "seconds" else value


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _document(study: "Study", finished: bool) -> dict[str, Any]:
    from rankformer.tuning.report import CONFIG, best_settings

    aim, best = study.objective, study.best
    return {
        "study": str(aim.folder),
        "finished": finished,
        "model": aim.method.name,
        "data": {"name": aim.data.name, "fingerprint": aim.data.fingerprint},
        "seed": aim.seed,
        "metric": aim.metric,
        "fixed": dict(aim.fixed),
        "space": study.identity()["search space"],
        "best": None if best is None else {**best.to_json(), "settings": best_settings(study, best)},
        "config": None if best is None else str(aim.folder / CONFIG),
        "trials": [trial.to_json() for trial in study.trials],
    }
