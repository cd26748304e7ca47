"""`rankformer reproduce`: the paper's tables and figures, computed here and set beside the paper's numbers."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.exhibit_request import build_request
from rankformer.cli.interrupted import Interrupted
from rankformer.cli.output import (
    JsonFlag,
    console,
    help_of,
    printable,
    show,
    show_json,
    show_note,
    show_table,
    show_warning,
)
from rankformer.cli.progress import on_terminal
from rankformer.errors import ConfigError

if TYPE_CHECKING:
    from rankformer.research.content import Content
    from rankformer.research.registry import Exhibit
    from rankformer.research.report import Head
    from rankformer.research.request import Request
    from rankformer.research.runner import Results, Step

EXAMPLES = """Examples:

rankformer reproduce lemma

rankformer reproduce figure-random --dataset demo

rankformer reproduce table-ablation --dataset ali-display --workers 2 --out results

rankformer reproduce figure-tau --dataset ali-display --step 0.2

rankformer reproduce table-comparison --seeds 3 --report-only
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="reproduce", help=help_of(reproduce), epilog=EXAMPLES)(reproduce)


def reproduce(
    exhibit: Annotated[
        str,
        typer.Argument(
            metavar="EXHIBIT",
            help="table-comparison, table-ablation, table-runtime, figure-random, figure-tau, figure-alpha or lemma.",
        ),
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="A dataset; may be repeated. Unsaid: the paper's four, as far as they are here."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Compute seeds 0 to N - 1.")] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that compute at the same time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads of each process; unsaid, the cores are shared out.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where trainings compute.")] = "cpu",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the reports; made if missing.")] = Path(
        "results"
    ),
    cells: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for finished and unfinished cells. Unsaid: DIR/cells.")
    ] = None,
    configs: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with DATASET/MODEL.toml; rows without one take the defaults.")
    ] = Path("experiments/configs"),
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Rows of table-comparison and table-runtime; unsaid, all.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Cut trainings off, to try it out; the report says so.")
    ] = None,
    step: Annotated[
        float | None, typer.Option(metavar="S", help="Grid of figure-tau; unsaid 0.1, the paper's.")
    ] = None,
    alphas: Annotated[
        str | None, typer.Option(metavar="A,B", help="Grid of figure-alpha; unsaid 0,0.5,1,1.5,2,3,5,10.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Deepest stack of figure-random; unsaid 10.")
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", metavar="", help="Compute nothing: show the cells that are there.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Compute a table or figure of the paper and write its report: JSON, Markdown, HTML, and a picture.

    Every training or computation is a cell, kept under a hash of data, method, settings, seed and code, so that a
    stopped reproduction goes on where it was when the same command is run again, and exhibits share what they can.
    """
    from rankformer.research.report import head_of, write_report

    chosen = _exhibit_named(exhibit)
    given = {"dataset": dataset, "methods": methods, "epochs": epochs, "step": step, "alphas": alphas, "layers": layers}
    given = {name: value for name, value in given.items() if value is not None}
    _check_options(exhibit, chosen, given)
    request = build_request(chosen, given, seeds, configs)
    results = _results(chosen, request, cells or out / "cells", (workers, threads, device), report_only)
    content = chosen.show(request, results)
    command = _command(exhibit, {**given, "seeds": seeds, "report-only": report_only or None}, configs)
    stem = "-".join([exhibit, *(_slug(card.name) for card in request.datasets if dataset)])
    head = head_of(exhibit, chosen.title, command, request)
    _show_outcome(head, content, *write_report(out, stem, head, content), json)


def _exhibit_named(name: str) -> "Exhibit":
    from rankformer.research.registry import EXHIBITS

    if name not in EXHIBITS:
        raise ConfigError(f"no exhibit is called {name!r}; expected one of {', '.join(EXHIBITS)}")
    return EXHIBITS[name]


def _check_options(name: str, exhibit: "Exhibit", given: dict[str, Any]) -> None:
    from rankformer.research.registry import EXHIBITS

    for option in given:
        if option not in exhibit.options:
            users = [each for each, other in EXHIBITS.items() if option in other.options]
            raise ConfigError(f"--{option} means nothing to {name}; it belongs to {', '.join(users)}")


def _results(
    exhibit: "Exhibit", request: "Request", folder: Path, how: tuple[int, int | None, str], report_only: bool
) -> "Results":
    from rankformer.research.cache import ResultCache
    from rankformer.research.compute import Conditions
    from rankformer.research.runner import known_results, run_cells

    workers, threads, device = how
    conditions = Conditions(threads or max(1, (os.cpu_count() or 1) // workers), workers, device)
    cells, cache = exhibit.cells(request), ResultCache(folder)
    with _progress() as tell:
        if report_only:
            return known_results(cells, cache, tell)
        try:
            return run_cells(cells, cache, conditions, tell)
        except KeyboardInterrupt:
            raise Interrupted(f"what is done is kept in {folder}; run the same command again to go on") from None


@contextmanager
def _progress() -> Iterator[Callable[["Step"], None]]:
    """Yield what tells of the cells on stderr: a line for each, and on a terminal also the epoch under way."""
    if not on_terminal():
        yield _tell_line
        return
    with console(stderr=True).status("starting") as status:

        def tell(step: "Step") -> None:
            if step.what in ("begun", "epoch"):
                status.update(printable(step.text))
            else:
                _tell_line(step)

        yield tell


def _tell_line(step: "Step") -> None:
    if step.what == "note":
        show_warning(step.text)
    elif step.what == "begun":
        show_note(step.text, "begun", "dim")
    elif step.what == "done":
        metrics = (step.result or {}).get("metrics")
        value = f", NDCG@20 {metrics['ndcg@20']:.4f}" if isinstance(metrics, dict) else ""
        show_note(f"{step.text}{value}, {step.seconds:.1f} s", f"{step.done}/{step.total}")


def _command(exhibit: str, flags: dict[str, Any], configs: Path) -> str:
    """Return the command line that makes this report again, wherever its cells are kept."""
    words = ["rankformer", "reproduce", exhibit]
    for name, value in flags.items():
        for each in value if isinstance(value, list) else [value]:
            if each is True:
                words.append(f"--{name}")
            elif each is not None:
                words += [f"--{name}", str(each)]
    if configs != Path("experiments/configs"):
        words += ["--configs", configs.as_posix()]
    return shlex.join(words)


def _show_outcome(head: "Head", content: "Content", paths: list[Path], problems: list[str], json: bool) -> None:
    from rankformer.research.report import document_of

    for dataset, reason in head.absent:
        show_note(f"{dataset} was not run: {reason}")
    for problem in problems:
        show_note(problem)
    if json:
        show_json({**document_of(head, content), "files": [str(path) for path in paths]})
        return
    for table in content.tables:
        show_table(table.headings, table.rows, title=table.title, numbers=table.headings[table.texts :])
    if head.trial:
        show(f"A trial, not a result: {head.trial}.")
    show(*content.findings, f"wrote {', '.join(str(path) for path in paths)}")


def _slug(name: str) -> str:
    """Return a dataset's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "data"
