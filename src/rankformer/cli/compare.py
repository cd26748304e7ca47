"""`rankformer compare`: runs side by side on the test part they share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.model_options import ThreadsOption
from rankformer.cli.output import JsonFlag, option, show, show_json, show_table
from rankformer.cli.progress import busy
from rankformer.errors import ConfigError, RunFolderError

if TYPE_CHECKING:
    from rankformer.evaluation.comparison import Group
    from rankformer.runs.saved import Run

RunArguments = Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Folders that `train --out` made.")]


def compare(
    runs: RunArguments,
    metrics: Annotated[
        str, option("NAMES", "What to measure, with commas; the first is tested.")
    ] = "ndcg@20,recall@20,recall_capped@20",
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Compare runs on the test part they share, each with the first.

    Shown are the metrics of all users, coverage, novelty, Gini and diversity of the lists, seconds and size; a paired
    t-test over users of the first metric; and where a difference comes from: users by their training interactions, test
    interactions by the popularity of their item. Runs with another test part or protocol are refused. Of a run
    that was refitted the lists from before the refit count.

    Examples:
        rankformer compare runs/ease runs/rankformer
        rankformer compare runs/a runs/b runs/c --metrics recall@10,ndcg@10 --json
    """
    from rankformer.evaluation.comparison import compare as compare_evaluations
    from rankformer.evaluation.comparison import p_value
    from rankformer.evaluation.metrics import parse_metrics
    from rankformer.runs.saved import load_run

    wanted = [str(metric) for metric in parse_metrics(metrics)]
    names = _names(runs)
    if len(names) < 2:
        raise ConfigError("name two or more different runs: rankformer compare RUN RUN...")
    with busy("comparing"):
        loaded = {name: load_run(path) for name, path in names.items()}
        evaluations = {}
        for name, run in loaded.items():
            try:
                evaluations[name] = run.evaluate_again(wanted)
            except RunFolderError as error:
                raise RunFolderError(f"{names[name]}: {error}") from error
        first = next(iter(loaded.values()))
        found = compare_evaluations(evaluations, first.parts.train, first.parts.test)
    facts = {name: _facts(run, names[name]) for name, run in loaded.items()}
    protocol = next(iter(evaluations.values())).protocol
    if json:
        show_json({**found.to_dict(), "facts": facts, "protocol": protocol.to_dict()})
        return
    rows = [(key, *(values[key] for values in found.runs.values())) for key in next(iter(found.runs.values()))]
    rows += [(key, *(f"{each[key]:,}" for each in facts.values())) for key in ("seconds", "bytes")]
    show_table(("", *names), rows, title=f"{protocol.users:,} users of {protocol.split}", numbers=tuple(names))
    tests = [
        (name, test.difference, f"{test.low:+.4f} to {test.high:+.4f}", p_value(test.p))
        for name, test in found.tests.items()
    ]
    title = f"{found.metric} less that of {next(iter(names))}, paired over users"
    show_table(("run", "difference", "95% interval", "p"), tests, title=title, numbers=("difference", "p"))
    _show_groups(f"{found.metric} by training interactions of the user", "users", found.by_activity)
    what = f"test interactions in the first {max(protocol.k)}, by training interactions of the item"
    _show_groups(what, "test interactions", found.by_popularity)
    show(f"protocol: {protocol.line()}")


def _names(paths: list[Path]) -> dict[str, Path]:
    """Return the different folders by their own names, or by their paths where two share a name."""
    different = list(dict.fromkeys(path.resolve() for path in paths))
    short = [path.name for path in different]
    return {name if short.count(name) == 1 else str(path): path for name, path in zip(short, different, strict=True)}


def _facts(run: "Run", folder: Path) -> dict[str, Any]:
    """Return method, seconds of the training and of the refit, and size of a run."""
    from rankformer.runs.training_log import history_of

    seconds = history_of(run.log).seconds + (run.refit or {}).get("seconds", 0.0)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return {"model": run.model, "seconds": round(seconds, 1), "bytes": size}


def _show_groups(title: str, what: str, groups: "list[Group]") -> None:
    names = tuple(groups[0].values) if groups else ()
    rows = [(group.label, f"{group.size:,}", *group.values.values()) for group in groups]
    show_table(("training interactions", what, *names), rows, title=title, numbers=(what, *names))
