"""`rankformer train`: learn from a log and keep the result in a run folder."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.model_options import ConfigOption, ModelOption, SetOption, ThreadsOption
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_note, show_table
from rankformer.cli.progress import busy
from rankformer.cli.training import course_of, fit_and_evaluate, save
from rankformer.errors import ConfigError
from rankformer.runs.configuration import chosen_model, chosen_settings, read_config
from rankformer.runs.folder import State, check_flags, clear, last_checkpoint, state_of

if TYPE_CHECKING:
    from rankformer.models.base import Model
    from rankformer.runs.run import Run

EXAMPLES = """Examples:

rankformer train demo --out runs/demo --set epochs=200

rankformer train clicks.csv --out runs/clicks --user-column visitor --k-core 5 --seed 1

rankformer train epinions --out runs/epinions --config experiments/configs/epinions/rankformer.toml
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
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Decides the start, negatives and batches. Unsaid: 0.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")] = "auto",
    threads: ThreadsOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on from the checkpoint in RUN, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Replace the run or checkpoint in RUN.")
    ] = False,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a model on DATA and keep it in RUN.

    Settings are the method's defaults, changed by --config, changed by --set. The best epoch is chosen on the valid
    part; the test part is evaluated once, at the end. A training that was cut off goes on with --resume.
    """
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; use one of them")
    content = read_config(config)
    source = data_source(data, {**content.get("data", {}), **options})
    state = state_of(out)
    check_flags(out, state, resume, overwrite)
    fitted = _new_model(content, model, assignments or [], seed, device)
    if state is State.FINISHED and resume:
        _show_finished(out, json)
        return
    _use_threads(threads)
    with busy(f"reading {source.source}"):
        parts = source.load()
    if overwrite:
        clear(out)
    try:
        evaluation = fit_and_evaluate(fitted, parts, out, resume)
        save(fitted, out, source, parts, evaluation)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(out, overwrite)) from None
    _show_outcome(out, json, "trained")


def _new_model(
    content: dict[str, Any], name: str | None, assignments: list[str], seed: int | None, device: str
) -> "Model":
    from rankformer.models.registry import model_class

    method = model_class(chosen_model(content, name))
    settings = chosen_settings(method, content, assignments)
    return method(seed=content.get("seed", 0) if seed is None else seed, device=device, **settings)


def _use_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


def _how_to_go_on(folder: Path, overwrite: bool) -> str:
    epoch = last_checkpoint(folder)
    flags = "--resume in place of --overwrite" if overwrite else "--resume"
    if epoch is None:
        return f"no checkpoint was reached; run the same command with {flags} to start again"
    return f"the checkpoint in {folder} is at epoch {epoch}; run the same command with {flags} to go on from it"


def _show_finished(folder: Path, json: bool) -> None:
    if not json:
        show_note(f"{folder} is already finished; nothing was trained")
    _show_outcome(folder, json, "already finished")


def _show_outcome(folder: Path, json: bool, status: str) -> None:
    """Show a run as it is on disk, every byte of it checked."""
    from rankformer.runs.run import load_run

    run = load_run(folder)
    course = course_of(run.log)
    if json:
        shown = {"run": str(folder), "status": status, "model": run.model, "seed": run.seed, **course}
        show_json({**shown, "data": run.data, "metrics": run.metrics, "protocol": run.protocol})
        return
    show(_summary(run, course))
    if run.metrics:
        show_table(("metric", "test"), run.metrics.items(), numbers=("test",))
        show(f"protocol: {_protocol_line(run)}")
    else:
        show("there is no test part, so nothing was measured")
    user = shlex.quote(str(run.recommender.user_ids.ids[0].as_py()))
    show(f"saved in {folder}", f"lists:  rankformer recommend {shlex.quote(str(folder))} --user {user}")


def _summary(run: "Run", course: dict[str, Any]) -> str:
    data = run.data
    size = f"{data['users']:,} users x {data['items']:,} items, {data['train_pairs']:,} train pairs"
    went = f", best epoch {course['best_epoch']} of {course['epochs']}, {course['seconds']:.1f} s"
    return f"{run.model} on {data['name']}: {size}{went if course['epochs'] else ''}"


def _protocol_line(run: "Run") -> str:
    from rankformer.evaluation.protocol import Protocol

    return Protocol(**{**run.protocol, "k": tuple(run.protocol["k"])}).line()
