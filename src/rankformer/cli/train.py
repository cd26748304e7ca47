"""`rankformer train`: learn from a log and keep the result in a run folder."""

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.item_options import ItemsOption, read_items
from rankformer.cli.model_options import (
    CallbackOption,
    ConfigOption,
    DeviceOption,
    ModelOption,
    SetOption,
    ThreadsOption,
    TrackOption,
    build_model,
    tracking_options,
)
from rankformer.cli.output import JsonFlag, option, show, show_json, show_metrics, show_note, show_table, show_warning
from rankformer.cli.progress import busy, progress_of
from rankformer.cli.ranks import (
    RanksOption,
    RestartsOption,
    TimeoutOption,
    WireOption,
    is_rank,
    on_ranks,
    start_ranks,
    was_restarted,
)
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
    epochs: Annotated[int | None, option("N", "Most epochs: short for --set epochs=N.", min=1)] = None,
    items: ItemsOption = None,
    budget: Annotated[
        str | None, option("TIME", "Bound the time of a blend, such as 90s, 2m or 1h. Default: 15m.")
    ] = None,
    seed: Annotated[int | None, option("N", "Decides every random draw. Default: 0.", min=0)] = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    resume: Annotated[bool, option("", "Continue from the checkpoint in RUN, if there is one.", "--resume")] = False,
    overwrite: Annotated[bool, option("", "Replace the run or checkpoint in RUN.", "--overwrite")] = False,
    refit: Annotated[
        bool | None,
        option("", "Fit again on all parts before saving (default: if DATA is one log).", "--refit/--no-refit"),
    ] = None,
    track: TrackOption = None,
    callback: CallbackOption = None,
    ranks: RanksOption = None,
    max_restarts: RestartsOption = 3,
    rank_timeout: TimeoutOption = 600,
    wire: WireOption = "float32",
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a model on DATA and keep it in RUN.

    Hyperparameters are the method's defaults, changed by --config, changed by --set; a method with tune=true chooses
    the few that matter on the validation part, unless they are given. The best epoch is chosen there, too; the test
    part is evaluated once, at the end. From one log, the model that is saved is then fitted again on all of it with
    what was chosen; the metrics stay those of the evaluated one. Lists never hold a known interaction. An interrupted
    training continues with --resume. With --ranks, or under torchrun, several processes share the users; the result is
    that of one.

    Examples:
        rankformer train demo --out runs/demo --model rankformer --epochs 200
        rankformer train clicks.csv --out runs/clicks --user-column visitor --k-core 5 --seed 1
        rankformer train orders.csv --out runs/shop --items products.csv
        rankformer train clicks.csv --out runs/may --split time --test-from 2026-05-01
        rankformer train epinions --out runs/epinions --config my-rankformer.toml
        rankformer train clicks.csv --out runs/clicks --track tensorboard,mlflow
        rankformer train epinions --out runs/epinions --model rankformer --ranks 2
    """
    from rankformer.data.summary import split_warnings
    from rankformer.evaluation.metrics import parse_metrics
    from rankformer.runs.configuration import read_configuration
    from rankformer.runs.fitting import check_ranks, note_weights
    from rankformer.runs.folder import RunFolder, State
    from rankformer.runs.saved import load_run
    from rankformer.runs.sequence import train_run
    from rankformer.runs.training_log import read_log
    from rankformer.tracking.tracked import tracked

    if resume and overwrite:
        raise ConfigError("--resume and --overwrite contradict each other; use one of them")
    tracking = tracking_options(track, callback)
    if ranks is not None and ranks > 1 and not is_rank():
        start_ranks(ranks, max_restarts)
        return
    configuration = read_configuration(config)
    source = data_source(data, {**configuration.get("data", {}), **options})
    folder = RunFolder(out)
    with on_ranks(rank_timeout, wire, device) as group, nullcontext() if group.rank else folder.lock():
        again = group.total(float(was_restarted()))[0] > 0  # of several machines, that of the lost rank counts alone
        resume, overwrite, found = resume or again, overwrite and not again, State.EMPTY
        with group.together():
            if group.rank == 0:
                found = folder.claim(resume=resume, overwrite=overwrite)
        state = list(State)[int(group.agreed(list(State).index(found)))]
        short = {"epochs": epochs, "budget": budget}
        changes = [*(assignments or ()), *(f"{name}={value}" for name, value in short.items() if value is not None)]
        learner = build_model(configuration, model, changes, seed, device)
        parse_metrics(getattr(learner.settings, "metric", "ndcg@20"))  # before anything is shown
        check_ranks(learner, group)
        wants_refit = not source.comes_split if refit is None else refit
        with busy(f"reading {source.source}"), group.together():
            parts = source.load() if group.alone else source.load_block(group.rank, group.size)
            attributes = None if items is None else read_items(items, source.item, source.title)
            if attributes is not None:
                attributes.align(parts.train.item_ids)  # ids of another kind are reported before the training
            weights = note_weights(learner, parts.train)
            warnings = split_warnings(parts) if group.alone else []
        if state is State.FINISHED and resume:
            folder.check_finished(learner, parts, refit)
            if not json:
                show_note(f"{out} is already finished; nothing was trained")
            _show_run(out, load_run(out).recommender, "already finished", json)
            return
        if weights is not None and not json:
            asked_for = source.weight or source.event or source.half_life
            show_note(weights if asked_for else f"{weights} (--weight-column '' reads none)")
        if overwrite and group.rank == 0:
            folder.clear()
        group.barrier()
        for warning in [] if resume else warnings:
            show_warning(warning)
        work, said = folder.training, {"model": learner.name, "data": source.name, "seed": learner.seed}
        said |= {"data_fingerprint": parts.fingerprint, **learner.settings.hyperparameters()}
        if group.rank:  # the first rank tracks
            tracking = tracking_options(None, None)
        if resume:
            tracking["earlier"] = lambda: learner.log or read_log(work)
        try:
            with (
                tracked(**tracking, name=out.resolve().name, folder=out, settings=said) as tell,
                progress_of(learner.settings, validates=len(parts.valid) > 0, tell=tell) as on_event,
            ):
                how: dict[str, Any] = {"resume": resume, "refit": wants_refit, "on_event": on_event, "stage": busy}
                outcome, _ = train_run(learner, source, parts, out, work, items=attributes, **how)
                metrics = outcome.evaluation.metrics if outcome.evaluation else {}
                tell({"event": "end", "part": "test", "metrics": metrics, "run": str(out.resolve())})
        except KeyboardInterrupt:
            unit = "fit" if hasattr(learner.settings, "members") else "epoch"
            raise Interrupted(_how_to_continue(folder, overwrite, unit)) from None
        if group.rank == 0:
            _show_run(out, learner.recommender, "trained", json, warnings)


def _how_to_continue(folder: "RunFolder", overwrite: bool, unit: str) -> str:
    epoch = folder.checkpoint_epoch()
    flags = "--resume in place of --overwrite" if overwrite else "--resume"
    if folder.is_refitting:
        return f"the refit in {folder.path} has begun; run the same command with {flags} to continue it"
    if epoch is None:
        return f"no checkpoint was reached; run the same command with {flags} to start again"
    return (
        f"the checkpoint in {folder.path} is at {unit} {epoch}; run the same command with {flags} to continue from it"
    )


def _show_run(folder: Path, recommender: "Recommender", status: str, json: bool, warnings: Sequence[str] = ()) -> None:
    """Show what the manifest and the training log of a finished run say."""
    from rankformer.evaluation.protocol import Protocol
    from rankformer.runs.manifest import read_manifest
    from rankformer.runs.training_log import blend_report, history_of, read_log

    manifest, log = read_manifest(folder), read_log(folder)
    history, blend = history_of(log), blend_report(log)
    model, seed, data, metrics, protocol = (manifest[key] for key in ("model", "seed", "data", "metrics", "protocol"))
    warm, refit = manifest.get("warm_metrics", {}), manifest.get("refit")
    if json:
        training = {name: getattr(history, name) for name in ("epochs", "best_epoch", "seconds")}
        document = {"run": str(folder), "status": status, "model": model, "seed": seed, **training}
        document |= {"data": data, "metrics": metrics, "warm_metrics": warm, "protocol": protocol, "refit": refit}
        document |= {} if blend is None else {"blend": blend}
        show_json({**document, "warnings": list(warnings)})
        return
    count = data.get("train_interactions", data.get("train_pairs", 0))  # runs of version 0.1 have the second
    size = f"{data['users']:,} users x {data['items']:,} items, {count:,} training interactions"
    went = f", best epoch {history.best_epoch} of {history.epochs}, {history.seconds:.1f} s"
    show(f"{model} on {data['name']}: {size}{went if history.epochs else ''}")
    for event in log:
        if event["event"] == "chosen":
            chosen = ", ".join(f"{name}={value}" for name, value in event["settings"].items())
            show(f"chosen on the validation part: {chosen} (tune=false takes the defaults)")
    if metrics:
        show_metrics("test", metrics, warm)
        show(f"protocol: {Protocol.from_dict(protocol).line()}")
    else:
        show("there is no test part, so nothing was measured")
    if refit:
        epochs = f" for {refit['epochs']} epochs" if "epochs" in refit else ""
        show(f"refitted on all {refit['interactions']:,} interactions{epochs}; the metrics are from before that")
    if blend is not None:
        _show_blend(blend)
    if recommender.items is not None:
        names = ", ".join(recommender.items.columns) or "none"
        show(f"attributes of items: {names}")
    cold = recommender.cold_items
    if cold is not None:
        show(f"{len(cold.items):,} items without interactions: {cold.rule or 'by attributes'}")
    user = shlex.quote(str(recommender.user_ids.ids[0].as_py()))
    show(f"saved in {folder}", f"lists:  rankformer recommend {shlex.quote(str(folder))} --user {user}")


def _show_blend(report: dict[str, Any]) -> None:
    """Show the members of a blend: weights, each alone, the blend without it, and what it took."""
    names = ("label", "weight", "alone", "without", "seconds")
    rows = [tuple(each[name] for name in names) for each in report["members"]]
    headings = ("member", "weight", "alone", "blend without it", "seconds")
    title = f"members, on the validation part (the blend: {report['value']:.4f})"
    show_table(headings, rows, title=title, numbers=headings[1:])
    for name, reason in report["refused"].items():
        show(f"left out: {name} ({reason})")
