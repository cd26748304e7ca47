"""`rankformer evaluate`: the metrics of a run, with the protocol that produced them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.data_options import data_source, takes_data_options
from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_metrics, show_note, show_warning
from rankformer.cli.progress import busy
from rankformer.cli.ranks import TimeoutOption, on_ranks
from rankformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.data.parts import Parts
    from rankformer.runs.saved import Run

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `rankformer train --out` made.")]


def load(run: Path) -> "Run":
    """Return a run; where checking its files takes long, that is shown."""
    from rankformer.runs.saved import load_run

    with busy(f"loading {run}"):
        return load_run(run)


@takes_data_options
def evaluate(
    run: RunArgument,
    data: Annotated[
        str | None, option("DATA", "Evaluate on other data than the run's own; one file is the test part as it is.")
    ] = None,
    mask: Annotated[
        str, option("train|train+valid|known|none", "Leave these known interactions out of lists.")
    ] = "train",
    metrics: Annotated[str, option("NAMES", "What to measure, with commas.")] = "ndcg@20,recall@20,recall_capped@20",
    per_user: Annotated[Path | None, option("FILE", "Also write each user's values to a csv or parquet file.")] = None,
    threads: ThreadsOption = None,
    rank_timeout: TimeoutOption = 600,
    json: JsonFlag = False,
    *,
    options: dict[str, Any],
) -> None:
    """Measure the lists of RUN on the test part of its data.

    recall divides by the user's test items, recall_capped by at most K of them (as the paper does). Files that changed
    since the training are refused; --data measures on them as they are: a file is the test part, unless --split or
    --parts divides it. Of a run that was refitted the lists from before are measured, which the run keeps. Under
    torchrun the ranks share the users, and the first shows the result.

    Examples:
        rankformer evaluate runs/demo
        rankformer evaluate runs/demo --metrics ndcg@10,recall@10,coverage@10 --per-user values.csv
        rankformer evaluate runs/clicks --data new-clicks.csv
    """
    import pyarrow as pa

    from rankformer.data.writers import check_writable, write_table
    from rankformer.evaluation.evaluator import evaluate as measure
    from rankformer.evaluation.metrics import parse_metrics

    if options and data is None:
        raise ConfigError("flags that say how to read DATA need --data; a run knows how its own data is read")
    wanted = [str(metric) for metric in parse_metrics(metrics)]
    if per_user is not None:
        check_writable(per_user)
    with on_ranks(rank_timeout) as ranks:
        loaded = load(run)
        if data is None and loaded.update:
            raise ConfigError(f"{run} was updated and has learned its test part; name newer interactions with --data")
        if data is None and loaded.refit:
            if mask != loaded.protocol.get("mask", mask):
                kept = loaded.protocol["mask"]
                raise ConfigError(f"{run} was refitted and keeps the lists of mask={kept}, not {mask}")
            with busy("evaluating"):
                result = loaded.evaluate_again(wanted)
            if not json:
                show_note(f"{run} was refitted on the whole log; these are the metrics of the model before that")
        else:
            parts = _parts_of(run, loaded, data, options)
            said: dict[str, Any] = {"valid": parts.valid, "mask": mask, "seed": loaded.seed}
            with busy("evaluating"):
                result = measure(loaded.recommender, parts.test, metrics=wanted, **said)
            masked, size = result.protocol.test_interactions_masked, result.protocol.test_interactions
            if data is not None and masked:
                found = f"{masked:,} of {size:,} test interactions"
                show_warning(f"{found} are left out of lists by mask={mask}: never hit")
        if per_user is not None and ranks.rank == 0:
            write_table(pa.table({"user_id": result.user_ids, **result.per_user}), per_user)
        if json:
            show_json(result.to_dict())
            return
        show_metrics("value", result.metrics, result.warm_metrics)
        show(f"protocol: {result.protocol.line()}")
        if per_user is not None:
            show(f"wrote the values of {len(result.users):,} users to {per_user}")


def _parts_of(folder: Path, run: "Run", data: str | None, options: dict[str, Any]) -> "Parts":
    """Return the parts of DATA, or without it those of the run's own data, which must be the same as at training."""
    from rankformer.data.registry import DATASETS
    from rankformer.data.source import SPLIT_SETTINGS, DataSource

    if data is not None:
        source = data_source(data, options)
    elif not run.source:
        raise ConfigError(f"{folder} does not say where its data is; name it with --data DATA")
    else:
        source = DataSource(**run.source)
        if not source.is_there:
            raise DataError(f"the data of {folder} is no longer at {source.source}; name it with --data DATA")
    is_test_part = data is not None and not source.comes_split and data not in DATASETS
    with busy(f"reading {source.source}"):
        if is_test_part and not options.keys() & set(SPLIT_SETTINGS):
            return source.load_as_test()
        parts = source.load()
    found, expected = parts.fingerprint, run.data.get("fingerprint", "unknown")
    if found == expected:
        return parts
    difference = f"fingerprint {found[:16]}, trained on {expected[:16]}"
    if data is None:
        raise DataError(
            f"{source.source} has changed since {folder} was trained on it ({difference}); "
            "bring the old data back, or name it with --data to measure on it as it is now"
        )
    show_warning(f"{source.source} is not the data that {folder} was trained on ({difference})")
    return parts
