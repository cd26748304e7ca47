"""`rankformer train`: learn from a log and keep the result in a run folder."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.model_options import (
    ConfigOption,
    DeviceOption,
    ModelOption,
    SetOption,
    ThreadsOption,
    build_model,
    use_threads,
)
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_note, show_table
from rankformer.cli.progress import busy, progress_of
from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.runs.training_log import TrainingHistory

EXAMPLES = """Examples:

rankformer train demo --out runs/demo --set epochs=200

rankformer train clicks.csv --out runs/clicks --user-column visitor --k-core 5 --seed 1

rankformer train epinions --out runs/epinions --config my-rankformer.toml
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="train", help=help_of(train), epilog=EXAMPLES)(takes_data_options(train))


def train(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder for the trained model; made if missing.")],
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Decides every random draw. Default: 0.")] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Continue from the checkpoint in RUN, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Replace the run or checkpoint in RUN.")
    ] = False,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a model on DATA and keep it in RUN.

    Hyperparameters are the method's defaults, changed by --config, changed by --set. The best epoch is chosen on the
    validation part; the test part is evaluated once, at the end. An interrupted training continues with --resume.
    """
    from rankformer.runs.configuration import read_configuration
    from rankformer.runs.folder import RunFolder, State
    from rankformer.runs.sequence import train_run

    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; use one of them")
    configuration = read_configuration(config)
    source = data_source(data, {**configuration.get("data", {}), **options})
    folder = RunFolder(out)
    state = folder.claim(resume=resume, overwrite=overwrite)
    learner = build_model(configuration, model, assignments or (), seed, device)
    use_threads(threads)
    with busy(f"reading {source.source}"):
        parts = source.load()
    if state is State.FINISHED and resume:
        folder.check_finished(learner, parts)
        _show_finished(out, json)
        return
    if overwrite:
        folder.clear()
    try:
        with progress_of(learner.settings, validates=len(parts.valid) > 0) as on_event:
            outcome, described = train_run(learner, source, parts, out, resume=resume, on_event=on_event, stage=busy)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_continue(folder, overwrite)) from None
    evaluation = outcome.evaluation
    record = {
        "model": learner.name,
        "seed": learner.seed,
        "data": described,
        "metrics": evaluation.metrics if evaluation else {},
        "protocol": evaluation.protocol.to_dict() if evaluation else {},
    }
    _show_outcome(out, record, outcome.history, "trained", str(parts.train.user_ids.ids[0].as_py()), json)


def _how_to_continue(folder: Any, overwrite: bool) -> str:
    epoch = folder.checkpoint_epoch()
    flags = "--resume in place of --overwrite" if overwrite else "--resume"
    if epoch is None:
        return f"no checkpoint was reached; run the same command with {flags} to start again"
    return f"the checkpoint in {folder.path} is at epoch {epoch}; run the same command with {flags} to continue from it"


def _show_finished(folder: Path, json: bool) -> None:
    """Show a run that was finished before, every byte of it checked."""
    from rankformer.runs.saved import load_run
    from rankformer.runs.training_log import history_of

    if not json:
        show_note(f"{folder} is already finished; nothing was trained")
    run = load_run(folder)
    record = {name: getattr(run, name) for name in ("model", "seed", "data", "metrics", "protocol")}
    user = str(run.recommender.user_ids.ids[0].as_py())
    _show_outcome(folder, record, history_of(run.log), "already finished", user, json)


def _show_outcome(
    folder: Path, record: dict[str, Any], history: "TrainingHistory", status: str, user: str, json: bool
) -> None:
    from rankformer.evaluation.protocol import Protocol

    if json:
        training = {name: asdict(history)[name] for name in ("epochs", "best_epoch", "seconds")}
        shown = {"run": str(folder), "status": status, "model": record["model"], "seed": record["seed"], **training}
        show_json({**shown, **{name: record[name] for name in ("data", "metrics", "protocol")}})
        return
    data = record["data"]
    size = f"{data['users']:,} users x {data['items']:,} items, {data['train_pairs']:,} training interactions"
    went = f", best epoch {history.best_epoch} of {history.epochs}, {history.seconds:.1f} s"
    show(f"{record['model']} on {data['name']}: {size}{went if history.epochs else ''}")
    if record["metrics"]:
        show_table(("metric", "test"), record["metrics"].items(), numbers=("test",))
        show(f"protocol: {Protocol.from_dict(record['protocol']).line()}")
    else:
        show("there is no test part, so nothing was measured")
    show(f"saved in {folder}", f"lists:  rankformer recommend {shlex.quote(str(folder))} --user {shlex.quote(user)}")
