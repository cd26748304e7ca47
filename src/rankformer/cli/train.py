"""`rankformer train`: learn from a log and keep the result in a run folder."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.model_options import ConfigOption, DeviceOption, ModelOption, SetOption, ThreadsOption, build_model
from rankformer.cli.output import JsonFlag, option, show, show_json, show_note, show_table
from rankformer.cli.progress import busy, progress_of
from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.runs.folder import RunFolder
    from rankformer.scoring.recommender import Recommender


@takes_data_options
def train(
    data: DataArgument,
    out: Annotated[Path, option("RUN", "Folder for the trained model; made if missing.")],
    model: ModelOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    seed: Annotated[int | None, option("N", "Decides every random draw. Default: 0.", min=0)] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    resume: Annotated[bool, option("", "Continue from the checkpoint in RUN, if there is one.", "--resume")] = False,
    overwrite: Annotated[bool, option("", "Replace the run or checkpoint in RUN.", "--overwrite")] = False,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a model on DATA and keep it in RUN.

    Hyperparameters are the method's defaults, changed by --config, changed by --set. The best epoch is chosen on the
    validation part; the test part is evaluated once, at the end. An interrupted training continues with --resume.

    Examples:
        rankformer train demo --out runs/demo --set epochs=200
        rankformer train clicks.csv --out runs/clicks --user-column visitor --k-core 5 --seed 1
        rankformer train epinions --out runs/epinions --config my-rankformer.toml
    """
    from rankformer.runs.configuration import read_configuration
    from rankformer.runs.folder import RunFolder, State
    from rankformer.runs.saved import load_run
    from rankformer.runs.sequence import train_run

    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; use one of them")
    configuration = read_configuration(config)
    source = data_source(data, {**configuration.get("data", {}), **options})
    folder = RunFolder(out)
    with folder.lock():
        state = folder.claim(resume=resume, overwrite=overwrite)
        learner = build_model(configuration, model, assignments or (), seed, device)
        with busy(f"reading {source.source}"):
            parts = source.load()
        if state is State.FINISHED and resume:
            folder.check_finished(learner, parts)
            if not json:
                show_note(f"{out} is already finished; nothing was trained")
            _show_run(out, load_run(out).recommender, "already finished", json)
            return
        if overwrite:
            folder.clear()
        try:
            with progress_of(learner.settings, validates=len(parts.valid) > 0) as on_event:
                work = folder.training
                train_run(learner, source, parts, out, work, resume=resume, on_event=on_event, stage=busy)
        except KeyboardInterrupt:
            raise Interrupted(_how_to_continue(folder, overwrite)) from None
    _show_run(out, learner.recommender, "trained", json)


def _how_to_continue(folder: "RunFolder", overwrite: bool) -> str:
    epoch = folder.checkpoint_epoch()
    flags = "--resume in place of --overwrite" if overwrite else "--resume"
    if epoch is None:
        return f"no checkpoint was reached; run the same command with {flags} to start again"
    return f"the checkpoint in {folder.path} is at epoch {epoch}; run the same command with {flags} to continue from it"


def _show_run(folder: Path, recommender: "Recommender", status: str, json: bool) -> None:
    """Show what the manifest and the training log of a finished run say."""
    from rankformer.evaluation.protocol import Protocol
    from rankformer.runs.manifest import read_manifest
    from rankformer.runs.training_log import history_of, read_log

    manifest, history = read_manifest(folder), history_of(read_log(folder))
    model, seed, data, metrics, protocol = (manifest[key] for key in ("model", "seed", "data", "metrics", "protocol"))
    if json:
        training = {name: getattr(history, name) for name in ("epochs", "best_epoch", "seconds")}
        document = {"run": str(folder), "status": status, "model": model, "seed": seed, **training}
        show_json({**document, "data": data, "metrics": metrics, "protocol": protocol})
        return
    count = data.get("train_interactions", data.get("train_pairs", 0))  # runs of version 0.1 have the second
    size = f"{data['users']:,} users x {data['items']:,} items, {count:,} training interactions"
    went = f", best epoch {history.best_epoch} of {history.epochs}, {history.seconds:.1f} s"
    show(f"{model} on {data['name']}: {size}{went if history.epochs else ''}")
    if metrics:
        show_table(("metric", "test"), metrics.items(), numbers=("test",))
        show(f"protocol: {Protocol.from_dict(protocol).line()}")
    else:
        show("there is no test part, so nothing was measured")
    user = shlex.quote(str(recommender.user_ids.ids[0].as_py()))
    show(f"saved in {folder}", f"lists:  rankformer recommend {shlex.quote(str(folder))} --user {user}")
