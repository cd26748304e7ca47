"""`rankformer evaluate`: the metrics of a run, with the protocol that produced them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import data_source, takes_data_options
from rankformer.cli.output import JsonFlag, help_of, show, show_json, show_table, show_warning
from rankformer.cli.progress import busy
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.interactions import Parts
    from rankformer.data.source import DataSource
    from rankformer.evaluation.evaluator import Evaluation
    from rankformer.runs.saved import Run

EXAMPLES = """Examples:

rankformer evaluate runs/demo

rankformer evaluate runs/demo --metrics ndcg@10,recall@10,coverage@10 --per-user values.csv

rankformer evaluate runs/clicks --data new-clicks.csv --parts 0,0,1
"""

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `rankformer train --out` made.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="evaluate", help=help_of(evaluate), epilog=EXAMPLES)(takes_data_options(evaluate))


def evaluate(
    run: RunArgument,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Evaluate on the test part of other data than the run's own.")
    ] = None,
    mask: Annotated[
        str, typer.Option(metavar="train|train+valid|none", help="Which known interactions are left out of the lists.")
    ] = "train",
    metrics: Annotated[
        str, typer.Option(metavar="NAMES", help="What to measure, with commas.")
    ] = "ndcg@20,recall@20,recall_capped@20",
    per_user: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write each user's values to a csv or parquet file.")
    ] = None,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Measure the lists of RUN on the test part of its data.

    recall divides by the user's test items, recall_capped by at most K of them (as the paper does). Files that changed
    since the training are refused; --data measures on them as they are.
    """
    from rankformer.data.writers import check_writable
    from rankformer.evaluation.evaluator import evaluate as measure
    from rankformer.evaluation.metrics import parse_metrics
    from rankformer.runs.saved import load_run

    if options and data is None:
        raise ConfigError("flags that say how to read DATA need --data; a run knows how its own data is read")
    wanted = [str(metric) for metric in parse_metrics(metrics)]
    if per_user is not None:
        check_writable(per_user)
    loaded = load_run(run)
    parts = _own_parts(run, loaded) if data is None else _other_parts(run, loaded, data_source(data, options))
    with busy("evaluating"):
        result = measure(loaded.recommender, parts.test, metrics=wanted, valid=parts.valid, mask=mask, seed=loaded.seed)
    if per_user is not None:
        _write_per_user(per_user, loaded, result)
    if json:
        show_json(result.to_dict())
        return
    show_table(("metric", "value"), result.metrics.items(), numbers=("value",))
    show(f"protocol: {result.protocol.line()}")
    if per_user is not None:
        show(f"wrote the values of {len(result.users):,} users to {per_user}")


def _own_parts(folder: Path, run: "Run") -> "Parts":
    """Return the data the run was trained on, after making sure that it still is the same."""
    from rankformer.data.registry import DATASETS
    from rankformer.data.source import DataSource

    if "source" not in run.data:
        raise ConfigError(f"{folder} does not say where its data is; name it with --data DATA")
    source = DataSource(**run.data["source"])
    if source.source not in DATASETS and not Path(source.source).exists():
        raise DataError(f"the data of {folder} is no longer at {source.source}; name it with --data DATA")
    parts = _read(source)
    if parts.fingerprint != run.data.get("fingerprint"):
        raise DataError(
            f"{source.source} has changed since {folder} was trained on it ({_prints(run, parts)}); "
            "bring the old data back, or name it with --data to measure on it as it is now"
        )
    return parts


def _other_parts(folder: Path, run: "Run", source: "DataSource") -> "Parts":
    parts = _read(source)
    if parts.fingerprint != run.data.get("fingerprint"):
        show_warning(f"{source.source} is not the data that {folder} was trained on ({_prints(run, parts)})")
    return parts


def _read(source: "DataSource") -> "Parts":
    with busy(f"reading {source.source}"):
        return source.load()


def _prints(run: "Run", parts: "Parts") -> str:
    return f"fingerprint {parts.fingerprint[:16]}, trained on {str(run.data.get('fingerprint', 'unknown'))[:16]}"


def _write_per_user(path: Path, run: "Run", result: "Evaluation") -> None:
    import pyarrow as pa

    from rankformer.data.writers import write_table

    users = run.recommender.user_ids.take(result.users)
    write_table(
        pa.table({"user_id": users, **{name: pa.array(value) for name, value in result.per_user.items()}}), path
    )
