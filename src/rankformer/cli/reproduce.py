"""`rankformer reproduce`: the paper's tables and figures, computed here and set beside the paper's numbers."""

import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.interrupted import Interrupted
from rankformer.cli.output import JsonFlag, console, option, printable, show_json, show_note, show_table, show_warning
from rankformer.cli.progress import Heartbeat, busy, on_terminal
from rankformer.errors import AbsentDataError, ConfigError, DataError

if TYPE_CHECKING:
    from rankformer.research.content import Content
    from rankformer.research.experiments import Experiment
    from rankformer.research.request import Request
    from rankformer.research.results import Dataset
    from rankformer.research.runner import Step


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="table-comparison, table-ablation, table-runtime, figure-random, figure-tau, figure-alpha or lemma.",
        ),
    ],
    dataset: Annotated[
        list[str] | None, option("DATA", "A dataset; may be repeated. Default: the paper's four that are present.")
    ] = None,
    seeds: Annotated[int | None, option("N", "Compute seeds 0 to N - 1.", min=1)] = None,
    workers: Annotated[int, option("N", "Processes that compute at the same time.", min=1)] = 1,
    threads: Annotated[
        int | None, option("N", "Threads of each process. Default: the cores are shared.", min=1)
    ] = None,
    device: Annotated[str, option("auto|cpu|cuda", "Where trainings compute.")] = "cpu",
    out: Annotated[Path, option("DIR", "Folder for the reports.")] = Path("results"),
    results: Annotated[Path | None, option("DIR", "Folder for stored results. Default: OUT/stored.")] = None,
    configs: Annotated[
        str | None, option("best|paper|DIR", "Settings of the rows, DATASET/MODEL.toml. Default: best.")
    ] = None,
    methods: Annotated[
        str | None, option("A,B", "Rows of the table: methods, or package.module:Class. Default: all.")
    ] = None,
    epochs: Annotated[int | None, option("N", "Cut trainings off, to try it out; the report says so.", min=1)] = None,
    step: Annotated[float | None, option("S", "Step of the grid over tau. Default: 0.1.")] = None,
    alphas: Annotated[str | None, option("A,B", "Grid of figure-alpha. Default: 0,0.5,1,1.5,2,3,5,10.")] = None,
    layers: Annotated[int | None, option("N", "Deepest stack of figure-random. Default: 10.", min=1)] = None,
    fresh: Annotated[bool, option("", "Compute stored results again.", "--fresh")] = False,
    report_only: Annotated[bool, option("", "Compute nothing: show the stored results.", "--report-only")] = False,
    json: JsonFlag = False,
) -> None:
    """Compute a table or figure of the paper and write its report: JSON, Markdown, HTML, and a picture.

    Every result is stored with its commit, settings, seed and data fingerprint, and reused when settings, seed and data
    are the same: a stopped command continues when it is run again, and experiments share what they can.

    Examples:
        rankformer reproduce lemma
        rankformer reproduce figure-random --dataset demo
        rankformer reproduce table-comparison --dataset epinions --methods rankformer
        rankformer reproduce table-comparison --dataset epinions --methods rankformer,my_package.model:MyModel
        rankformer reproduce table-ablation --dataset ali-display --configs paper --workers 2
        rankformer reproduce table-comparison --seeds 3 --report-only
    """
    from rankformer.models.base import choose_device
    from rankformer.research.experiments import EXPERIMENTS
    from rankformer.research.report import head_of, write_report
    from rankformer.research.results import ResultStore
    from rankformer.research.runner import Conditions, run_computations, stored_results

    if experiment not in EXPERIMENTS:
        raise ConfigError(f"{experiment!r} is not a known experiment; expected one of {', '.join(EXPERIMENTS)}")
    if fresh and report_only:
        raise ConfigError("--fresh and --report-only contradict each other; use one of them")
    given = {"dataset": dataset or None, "methods": methods, "epochs": epochs, "step": step, "alphas": alphas}
    given |= {"layers": layers, "configs": configs}
    options = {name: value for name, value in given.items() if value is not None}
    for flag in options:
        takers = [name for name, each in EXPERIMENTS.items() if flag in each.options]
        if experiment not in takers:
            raise ConfigError(f"--{flag} means nothing to {experiment}; it belongs to {', '.join(takers)}")
    chosen, store = EXPERIMENTS[experiment], ResultStore(results or out / "stored")
    conditions = Conditions(threads or max(1, (os.cpu_count() or 1) // workers), workers, str(choose_device(device)))
    request = _request(chosen, options, seeds)
    computations = chosen.computations(request)
    with _progress() as tell:
        try:
            if report_only:
                found = stored_results(computations, store, tell)
            else:
                found = run_computations(computations, store, conditions, tell, fresh)
        except KeyboardInterrupt:
            again = "the same command without --fresh" if fresh else "the same command again"
            raise Interrupted(f"what is done is stored in {store.folder}; run {again} to continue") from None
    content = chosen.show(request, found)
    words = ["rankformer", "reproduce", experiment]
    for name, value in {**options, "seeds": seeds}.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name}", str(each)] if each is not None else []
    head = head_of(experiment, chosen.title, shlex.join(words), request, found.values())
    slugs = [re.sub(r"[^A-Za-z0-9.]+", "-", data.name).strip("-.") or "data" for data in request.datasets if dataset]
    _show_outcome(head, content, *write_report(out, "-".join([experiment, *slugs]), head, content), json)


def _request(experiment: "Experiment", options: dict[str, Any], seeds: int | None) -> "Request":
    """Return the request that the flags describe, its datasets loaded."""
    from rankformer.research.request import Request, check_methods, configurations, parse_alphas

    given: dict[str, Any] = {name: options[name] for name in ("epochs", "step", "layers", "configs") if name in options}
    given["settings_of"] = configurations(options.get("configs", "best"))
    if "alphas" in options:
        given["alphas"] = parse_alphas(options["alphas"])
    if "methods" in options:
        given["methods"] = check_methods([name.strip() for name in options["methods"].split(",") if name.strip()])
    datasets, absent = _datasets(options.get("dataset")) if "dataset" in experiment.options else ((), ())
    return Request(datasets=datasets, absent=absent, seeds=tuple(range(seeds or experiment.seeds)), **given)


def _datasets(names: list[str] | None) -> "tuple[tuple[Dataset, ...], tuple[tuple[str, str], ...]]":
    """Return the datasets that are present, and those that are not with the reason."""
    from rankformer.data.registry import remedy_for
    from rankformer.data.source import DataSource
    from rankformer.research.published import PAPER_DATASETS
    from rankformer.research.results import Dataset

    found: dict[str, Dataset] = {}
    absent: dict[str, str] = {}
    missing: DataError | None = None
    for name in dict.fromkeys(names or PAPER_DATASETS):
        try:
            with busy(f"reading {name}"):
                data = Dataset.of(DataSource(source=name))
        except AbsentDataError as error:
            missing = missing or error
            absent[name] = f"its files are not here; {remedy_for(name)}"
            continue
        if data.name in found:
            raise ConfigError(f"two datasets are called {data.name!r}; reproduce them one at a time")
        found[data.name] = data
    if missing is not None and not found:
        raise missing
    return tuple(found.values()), tuple(absent.items())


@contextmanager
def _progress() -> "Iterator[Callable[[Step], None]]":
    """Yield a function that reports each result on stderr, and on a terminal also the current epoch."""
    doing = "starting"
    with busy(doing) if on_terminal() else Heartbeat(lambda: doing) as status:  # None where nobody is watching

        def tell(step: "Step") -> None:
            nonlocal doing
            if step.what == "note":
                show_warning(step.text)
            elif step.what == "done":
                metrics = (step.result or {}).get("metrics")
                value = f", NDCG@20 {metrics['ndcg@20']:.4f}" if isinstance(metrics, dict) else ""
                show_note(f"{step.text}{value}, {step.seconds:.1f} s", f"{step.done}/{step.total}")
            elif status is not None:
                status.update(printable(step.text))
            else:
                doing = step.text
                if step.what == "begun":
                    show_note(step.text, "started", "dim")

        yield tell


def _show_outcome(head: dict[str, Any], content: "Content", paths: list[Path], problems: list[str], json: bool) -> None:
    from rankformer.research.report import document_of, other_commits

    for dataset, reason in head["absent"]:
        show_note(f"{dataset} was not run: {reason}")
    if others := other_commits(head):
        show_note(f"stored results of other code are shown ({others}); --fresh computes them again")
    for problem in problems:
        show_note(problem)
    if json:
        show_json({**document_of(head, content), "files": [str(path) for path in paths]})
        return
    for table in content.tables:
        # Numbers are at most 12 characters wide: headings that are wrapped too leave room for them at 80 columns.
        headings = [textwrap.fill(heading, 9, break_long_words=False) for heading in table.headings]
        show_table(headings, table.rows, title=table.title, numbers=headings[table.texts :])
    trial = [f"A trial, not a result: {head['trial']}."] if head["trial"] else []
    for line in (*trial, *content.findings, "wrote", *(f"  {path}" for path in paths)):
        console().print(printable(line))  # wrapped at the width of the terminal, between words
