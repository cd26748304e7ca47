"""`rankformer update`: what happened since a run was trained, learned in a fraction of the time."""

import shlex
from pathlib import Path
from typing import Annotated, Any

from rankformer.cli.data_options import takes_data_options
from rankformer.cli.evaluate import RunArgument
from rankformer.cli.item_options import ItemsOption, read_items
from rankformer.cli.model_options import DeviceOption, ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_metrics, show_warning
from rankformer.cli.progress import busy, progress_of
from rankformer.errors import ConfigError


@takes_data_options
def update(
    run: RunArgument,
    out: Annotated[Path, option("RUN", "Folder for the updated model; made if missing.")],
    new: Annotated[str | None, option("DATA", "New interactions: a file, pattern or database.", "--with")] = None,
    journal: Annotated[
        Path | None, option("FOLDER", "Learn what `serve --journal` wrote since the last update.")
    ] = None,
    prune: Annotated[
        bool, option("", "Remove what RUN has already learned from the journal.", "--prune-journal")
    ] = False,
    items: ItemsOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    overwrite: Annotated[
        bool, option("", "Replace the run in the folder for the updated model.", "--overwrite")
    ] = False,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Let RUN learn new interactions, users and items, and keep the result in another folder.

    RUN is not touched. A trained model continues from its parameters in a short training, a blend updates each of its
    members and keeps their weights, methods with a closed form are solved anew. The new file is read as the log of RUN
    was, unless flags say otherwise; titles and attributes of items are carried over. The metrics shown are those of
    RUN's lists on the new interactions before these are learned. Of a journal, each event is learned once.

    Examples:
        rankformer update runs/monday --with tuesday.csv --out runs/tuesday
        rankformer update runs/monday --journal events --out runs/tuesday
    """
    from rankformer.data.journal import JournalReader, interactions_of
    from rankformer.data.journal import prune as prune_journal
    from rankformer.data.source import SPLIT_SETTINGS, DataSource
    from rankformer.models.registry import model_class
    from rankformer.runs.folder import RunFolder
    from rankformer.runs.saved import load_run
    from rankformer.runs.sequence import update_run

    if new is None and journal is None:
        raise ConfigError("say what is new: --with DATA, --journal FOLDER, or both")
    if prune and journal is None:
        raise ConfigError("--prune-journal needs --journal FOLDER")
    for name in sorted(options.keys() & {*SPLIT_SETTINGS, "k_core"}):
        raise ConfigError(f"{name} is for train: an update neither splits new interactions nor drops rare ones")
    if run.resolve() in (out.resolve(), *out.resolve().parents):
        raise ConfigError(f"--out {out} is RUN itself or in it, which an update never touches; choose another folder")
    if journal is not None and not journal.is_dir():
        raise ConfigError(f"--journal {journal} is not a folder; give that of `rankformer serve --journal`")
    folder = RunFolder(out)
    with folder.lock():
        folder.claim(resume=False, overwrite=overwrite)
        with busy(f"reading {run}"):
            parent = load_run(run)
            model = model_class(parent.model).from_run(parent, device)
        source = DataSource(**{"source": "journal", **parent.source})
        recommender, logs, positions = parent.recommender, [], None
        if new is not None:
            with busy(f"reading {new}"):
                logs.append(source.for_new(new, **options).load_log())
        if journal is not None:
            source = source.for_new("journal", **options)
            reader = JournalReader(journal, (parent.update or {}).get("journal"))
            if prune:
                prune_journal(journal, reader.positions)
            events = list(reader.new_events())
            if reader.damaged:
                show_warning(f"{journal}: {reader.damaged:,} damaged events were ignored")
            ids = recommender.user_ids, recommender.catalogue
            found = interactions_of(events, *ids, source.event_weights) if events else None
            if found is not None:
                logs.append(found if source.half_life is None else found.decay(source.half_life))
            positions = reader.positions
        attributes = None if items is None else read_items(items, source.item, source.title)
        with progress_of(model.settings, validates=False) as on_event:
            how: dict[str, Any] = {"items": attributes, "journal": positions, "on_event": on_event, "stage": busy}
            said = update_run(model, run, parent, logs, out, **how)
    if json:
        show_json({"run": str(out), "model": parent.model, "update": said})
        return
    counts = f"{said['interactions']:,} new interactions, {said['users']:,} new users and {said['items']:,} new items"
    show(f"{parent.model} of {run} ({said['parent'][:12]}) updated by {counts}, {said['seconds']:.1f} s")
    if "before" in said:
        show_metrics("before", said["before"]["metrics"], {})
        show(f"measured on the new interactions with the lists of {run}, before they were learned")
    show(f"saved in {out}", f"lists:  rankformer recommend {shlex.quote(str(out))} --all")
