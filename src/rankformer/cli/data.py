"""`rankformer data`: list, look at, split, convert and fetch data."""

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import DataArgument, data_source, takes_data_options
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table
from rankformer.cli.progress import busy, download_progress
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.registry import Dataset

LIST_EXAMPLES = """Example:

rankformer data list
"""
INFO_EXAMPLES = """Examples:

rankformer data info demo

rankformer data info clicks.csv --user-column visitor --item-column product --split last --time-column at
"""
SPLIT_EXAMPLES = """Example:

rankformer data split clicks.csv --out clicks-split --split random-per-user --parts 0.8,0.1,0.1 --as parquet
"""
CONVERT_EXAMPLES = """Example:

rankformer data convert clicks.csv --out clicks.parquet --duplicates merge
"""
DOWNLOAD_EXAMPLES = """Example:

rankformer data download epinions
"""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = typer.Typer(help="List, look at, split, convert and fetch data.", epilog="Example:  rankformer data list")
    group.command(name="list", help=help_of(list_datasets), epilog=LIST_EXAMPLES)(list_datasets)
    group.command(name="info", help=help_of(info), epilog=INFO_EXAMPLES)(takes_data_options(info))
    group.command(name="split", help=help_of(split), epilog=SPLIT_EXAMPLES)(takes_data_options(split))
    group.command(name="convert", help=help_of(convert), epilog=CONVERT_EXAMPLES)(takes_data_options(convert))
    group.command(name="download", help=help_of(download), epilog=DOWNLOAD_EXAMPLES)(download)
    app.add_typer(group, name="data")


def list_datasets(json: JsonFlag = False) -> None:
    """List the datasets known by name, and whether their files are here.

    They are looked for in the folder that RANKFORMER_DATA names, then among the downloads.
    """
    from rankformer.data.registry import DATASETS

    rows = [_dataset_row(dataset) for dataset in DATASETS.values()]
    if json:
        show_json({"datasets": rows})
        return
    show_table(
        ("name", "users x items", "pairs", "here", "from"),
        [
            (
                row["name"],
                f"{row['users']:,} x {row['items']:,}",
                f"{row['pairs']:,}",
                _presence(row),
                row["homepage"].removeprefix("https://"),
            )
            for row in rows
        ],
        numbers=("users x items", "pairs"),
    )
    show("fetch one with:  rankformer data download NAME")


def _dataset_row(dataset: "Dataset") -> dict[str, Any]:
    from rankformer.data.demo import demo_log
    from rankformer.data.registry import find_dataset

    folder = None
    if not dataset.is_generated:
        try:
            folder = str(find_dataset(dataset.name))
        except DataError:
            folder = None
    return {
        "name": dataset.name,
        "description": dataset.description,
        "users": dataset.num_users,
        "items": dataset.num_items,
        "pairs": len(demo_log()) if dataset.num_pairs is None else dataset.num_pairs,
        "present": dataset.is_generated or folder is not None,
        "folder": folder,
        "downloadable": dataset.url_base is not None,
        "homepage": dataset.homepage or "made by this package",
        "citation": dataset.citation,
    }


def _presence(row: dict[str, Any]) -> str:
    if row["folder"] is not None:
        return "yes"
    if row["present"]:
        return "built in"
    return "no" if row["downloadable"] else "no, own files only"


def info(data: DataArgument, json: JsonFlag = False, *, options: dict[str, Any]) -> None:
    """Show what is in DATA: sizes, density, repeats, degrees, overlaps, cold ids and the fingerprint of the split."""
    from rankformer.cli.data_summary import summary_of

    source = data_source(data, options)
    with busy(f"reading {source.source}"):
        summary = summary_of(source.name, source.load())
    if json:
        show_json(summary)
    else:
        _show_summary(summary)


def _show_summary(summary: dict[str, Any]) -> None:
    size = f"{summary['users']:,} users x {summary['items']:,} items, {summary['pairs']:,} pairs"
    known = [label for label in ("times", "weights", "titles") if summary[label]]
    show(f"{summary['name']}: {size}, density {summary['density']:.4%}{', with ' if known else ''}{', '.join(known)}")
    counted = ("pairs", "repeated", "users", "items")
    cold = summary["cold"]
    show_table(
        ("part", *counted, "cold users", "cold items"),
        [
            (part, *(f"{row[name]:,}" for name in counted), *(cold[part].values() if part in cold else ("", "")))
            for part, row in summary["parts"].items()
        ],
        numbers=(*counted, "cold users", "cold items"),
    )
    labels = list(summary["train_pairs_per_user"])
    show_table(
        ("train pairs", *labels),
        [
            (f"per {side}", *(f"{value:,}" for value in summary[f"train_pairs_per_{side}"].values()))
            for side in ("user", "item")
        ],
        numbers=labels,
    )
    show(
        f"distinct pairs also in train: {summary['test_pairs_also_in_train']:,} of test, "
        f"{summary['valid_pairs_also_in_train']:,} of valid",
        f"fingerprint: {summary['fingerprint']}",
    )


def split(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder for train, valid and test files.")],
    written_as: Annotated[
        str, typer.Option("--as", metavar="csv|tsv|parquet|jsonl", help="Format to write; parquet keeps id types.")
    ] = "csv",
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write DATA as train, valid and test files with its own ids, and split.json that says how it was split.

    The folder can be used as DATA. An empty part has no file.
    """
    from rankformer.data.writers import check_writable, write_log
    from rankformer.files import write_bytes_atomic

    check_writable(Path(f"train.{written_as}"))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already and is not an empty folder; choose another --out")
    source = data_source(data, options)
    with busy(f"splitting {source.source}"):
        parts = source.load()
        files = {part: f"{part}.{written_as}" for part in parts._fields if len(getattr(parts, part))}
        for part, name in files.items():
            write_log(getattr(parts, part), out / name)
    document: dict[str, Any] = {
        "source": source.absolute().model_dump(mode="json"),
        "fingerprint": parts.fingerprint,
        "parts": {part: {"file": name, "pairs": len(getattr(parts, part))} for part, name in files.items()},
    }
    write_bytes_atomic(out / "split.json", (json_text.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    if json:
        show_json({"out": str(out), **document})
    else:
        counts = ", ".join(f"{name} {document['parts'][part]['pairs']:,} pairs" for part, name in files.items())
        show(f"wrote {counts} to {out}", f"train on it:  rankformer train {out} --out RUN")


def convert(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A csv, tsv, parquet or jsonl file.")],
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write all pairs of DATA to one file; of split data, train comes first and test last."""
    from rankformer.data.writers import check_writable, write_log

    check_writable(out)
    source = data_source(data, options)
    if out.exists() and Path(source.source).exists() and out.samefile(source.source):
        raise ConfigError(f"{out} is DATA itself; choose another --out")
    with busy(f"converting {source.source}"):
        log = source.load_log()
        write_log(log, out)
    if json:
        show_json({"out": str(out), "pairs": len(log)})
    else:
        show(f"wrote {len(log):,} pairs to {out}")


def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered name; `rankformer data list` shows them.")],
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Put it in DIR/NAME instead of the cache.")] = None,
    json: JsonFlag = False,
) -> None:
    """Fetch the files of a dataset and check them; what was cut off goes on where it stopped."""
    from rankformer.data.download import download_dataset

    with download_progress() as progress:
        folder = download_dataset(name, None if to is None else to / name, progress=progress)
    if json:
        show_json({"name": name, "folder": str(folder)})
        return
    show(f"{name} is in {folder}")
    if to is not None:
        show(f"it is found when RANKFORMER_DATA={to} is set")
