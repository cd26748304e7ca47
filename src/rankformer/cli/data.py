"""`rankformer data`: list, inspect, split, shard, convert and download data."""

import json as json_text
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.output import JsonFlag, add_command, help_of, option, show, show_json, show_table
from rankformer.cli.progress import busy, download_progress
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.registry import Dataset


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to the application, in a panel of its help."""
    example = "Example:  rankformer data list"
    group = typer.Typer(help="List, inspect, split, shard, convert and download data.", epilog=example)
    group.command(name="list", help=help_of(list_datasets), epilog=example)(list_datasets)
    for command in (info, split, shard, convert, download):
        add_command(group, command)
    app.add_typer(group, name="data", rich_help_panel=panel)


def list_datasets(json: JsonFlag = False) -> None:
    """List the datasets known by name, and whether their files are here.

    They are looked for in the folder that RANKFORMER_DATA names, then among the downloads.
    """
    from rankformer.data.registry import DATASETS

    rows = [_dataset_row(dataset) for dataset in DATASETS.values()]
    if json:
        show_json({"datasets": rows})
        return
    cells = []
    for row in rows:
        absent = "no" if row["downloadable"] else "no, own files only"
        here = ("yes" if row["folder"] else "built in") if row["present"] else absent
        size, homepage = f"{row['users']:,} x {row['items']:,}", row["homepage"].removeprefix("https://")
        cells.append((row["name"], size, f"{row['interactions']:,}", here, homepage))
    numbers = ("users x items", "interactions")
    show_table(("name", *numbers, "here", "from"), cells, numbers=numbers)
    show("download one with:  rankformer data download NAME")


def _dataset_row(dataset: "Dataset") -> dict[str, Any]:
    from rankformer.data.demo import demo_log
    from rankformer.data.registry import find_dataset

    folder = None
    with suppress(DataError):
        folder = None if dataset.is_generated else str(find_dataset(dataset.name))
    return {
        "name": dataset.name,
        "description": dataset.description,
        "users": dataset.num_users,
        "items": dataset.num_items,
        "interactions": len(demo_log()) if dataset.num_interactions is None else dataset.num_interactions,
        "present": dataset.is_generated or folder is not None,
        "folder": folder,
        "downloadable": dataset.url_base is not None,
        "homepage": dataset.homepage or "made by this package",
        "citation": dataset.citation,
    }


@takes_data_options
def info(data: DataArgument, json: JsonFlag = False, *, options: dict[str, Any]) -> None:
    """Show sizes, density, duplicates, degrees, overlaps, cold ids and the fingerprint of the split of DATA.

    Examples:
        rankformer data info demo
        rankformer data info clicks.csv --user-column visitor --item-column product --split last --time-column at
    """
    from rankformer.data.summary import summary_of

    source = data_source(data, options)
    with busy(f"reading {source.source}"):
        summary = summary_of(source.name, source.load())
    if json:
        show_json(summary)
    else:
        _show_summary(summary)


def _show_summary(summary: dict[str, Any]) -> None:
    size = f"{summary['users']:,} users x {summary['items']:,} items, {summary['interactions']:,} interactions"
    known = [label for label in ("times", "weights", "titles") if summary[label]]
    show(f"{summary['name']}: {size}, density {summary['density']:.4%}{', with ' if known else ''}{', '.join(known)}")
    counted = ("interactions", "duplicates", "users", "items")
    cold = summary["cold"]
    show_table(
        ("part", *counted, "cold users", "cold items"),
        [
            (part, *(f"{row[name]:,}" for name in counted), *(cold[part].values() if part in cold else ("", "")))
            for part, row in summary["parts"].items()
        ],
        numbers=(*counted, "cold users", "cold items"),
    )
    degrees = {side: summary[f"train_interactions_per_{side}"] for side in ("user", "item")}
    show_table(
        ("train interactions", *degrees["user"]),
        [(f"per {side}", *(f"{count:,}" for count in counts.values())) for side, counts in degrees.items()],
        numbers=list(degrees["user"]),
    )
    show(
        f"distinct interactions also in train: {summary['test_interactions_also_in_train']:,} of test, "
        f"{summary['valid_interactions_also_in_train']:,} of valid",
        f"fingerprint: {summary['fingerprint']}",
    )


@takes_data_options
def split(
    data: DataArgument,
    out: Annotated[Path, option("DIR", "New folder for train, valid and test files.", "--out")],
    written_as: Annotated[
        str, option("csv|tsv|parquet|jsonl", "Format to write; parquet keeps id types.", "--as")
    ] = "csv",
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write DATA as train, valid and test files with its own ids, and split.json that says how it was split.

    The folder can be used as DATA. An empty part has no file.

    Examples:
        rankformer data split clicks.csv --out clicks-split --split random-per-user --parts 0.8,0.1,0.1 --as parquet
    """
    from rankformer.data.writers import check_writable, write_table
    from rankformer.files import write_bytes_atomic

    check_writable(Path(f"train.{written_as}"))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder; choose another --out")
    source = data_source(data, options)
    written = {}
    with busy(f"splitting {source.source}"):
        parts = source.load()
        for part, log in zip(parts._fields, parts, strict=True):
            if len(log):
                written[part] = {"file": f"{part}.{written_as}", "interactions": len(log)}
                write_table(log.to_arrow(), out / f"{part}.{written_as}")
    settings = source.absolute().model_dump(mode="json")
    document = {"source": settings, "fingerprint": parts.fingerprint, "parts": written}
    write_bytes_atomic(out / "split.json", (json_text.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    if json:
        show_json({"out": str(out), **document})
    else:
        counts = ", ".join(f"{entry['file']} {entry['interactions']:,} interactions" for entry in written.values())
        show(f"wrote {counts} to {out}", f"train on it:  rankformer train {out} --out RUN")


@takes_data_options
def shard(
    data: DataArgument,
    shards: Annotated[int, option("P", "How many shards: one per rank.", "--shards", min=1)],
    out: Annotated[Path, option("DIR", "New folder for the shards.", "--out")],
    memory_limit: Annotated[
        str, option("SIZE", "Memory to use; the rest is spilled to disk beside DIR.", "--memory-limit")
    ] = "4GB",
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write DATA as shards for training on several machines, out of core: it may be larger than memory.

    Needs the extra `sql`. Ids are numbered over the whole log; duplicates, k-core and split are as in `train`. The
    folder can be used as DATA.

    Examples:
        rankformer data shard "logs/*.parquet" --shards 4 --out shards --k-core 5 --memory-limit 8GB
    """
    from rankformer.data.sharding import shard_log
    from rankformer.planning.machine import parse_size

    source = data_source(data, {"max_rows": 2**62, **options})
    with busy(f"sharding {source.source}"):
        manifest = shard_log(source, shards, out, parse_size(memory_limit))
    if json:
        show_json({"out": str(out), **manifest})
        return
    total = sum(manifest["interactions"].values())
    size = f"{total:,} interactions, {manifest['num_users']:,} users x {manifest['num_items']:,} items"
    show(f"wrote {size} in {shards} shards to {out}", f"train on it:  rankformer train {out} --out RUN")


@takes_data_options
def convert(
    data: DataArgument,
    out: Annotated[Path, option("FILE", "A csv, tsv, parquet or jsonl file.", "--out")],
    overwrite: Annotated[bool, option("", "Replace an older FILE.", "--overwrite")] = False,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write all interactions of DATA to one file; of split data, train comes first and test last.

    Examples:
        rankformer data convert clicks.csv --out clicks.parquet --duplicates merge
        rankformer data convert duckdb:shop.db --table clicks --out clicks.parquet --overwrite
    """
    from rankformer.data.writers import check_writable, write_table

    check_writable(out)
    source = data_source(data, options)
    if out.exists() and Path(source.source).exists() and out.samefile(source.source):
        raise ConfigError(f"{out} is DATA itself; choose another --out")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists; choose another --out, or replace it with --overwrite")
    with busy(f"converting {source.source}"):
        log = source.load_log()
        write_table(log.to_arrow(), out)
    if json:
        show_json({"out": str(out), "interactions": len(log)})
    else:
        show(f"wrote {len(log):,} interactions to {out}")


def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered name; `rankformer data list` shows them.")],
    to: Annotated[Path | None, option("DIR", "Put it in DIR/NAME instead of the cache.")] = None,
    json: JsonFlag = False,
) -> None:
    """Download the files of a dataset and check them; an interrupted download continues where it stopped.

    Examples:
        rankformer data download epinions
    """
    from rankformer.data.download import download_dataset

    with download_progress() as progress:
        folder = download_dataset(name, None if to is None else to / name, progress=progress)
    if json:
        show_json({"name": name, "folder": str(folder)})
        return
    show(f"{name} is in {folder}")
    if to is not None:
        show(f"it is found when RANKFORMER_DATA={to} is set")
