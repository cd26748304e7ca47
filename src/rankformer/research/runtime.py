"""table-runtime: seconds per epoch and to the best validation, from the trainings of table-comparison."""

from typing import Any

from rankformer.models.registry import MODELS
from rankformer.research.cells import Cell, DataCard
from rankformer.research.comparison import METHODS, comparison_cells
from rankformer.research.content import Content, Table
from rankformer.research.published import METHOD_NAMES, NDCG, RUNTIME, RUNTIME_ROWS
from rankformer.research.request import Request
from rankformer.research.runner import Results
from rankformer.research.summary import MISSING, Row, seconds, shown

HEADINGS = (
    *("method", "timed", "seeds", "seconds per epoch", "best epoch", "seconds to best", "seconds in all"),
    *("paper's seconds (GPU)", "NDCG@20 ours"),
)


def runtime_cells(request: Request) -> list[Cell]:
    """Return the trainings of the table: those of the comparison, so that nothing is trained twice."""
    return comparison_cells(request)


def show_runtime(request: Request, results: Results) -> Content:
    """Return one table per dataset."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        methods = [method for method in METHODS if request.wants(method)]
        rows = {method: Row.of(request.row(data, method), results) for method in methods}
        tables.append(_table(data, rows))
        findings += _sentence(data, rows)
        values[data.name] = {
            method: {"published": _published(data, method), **rows[method].to_dict()} for method in methods
        }
    notes = (
        "Ours: means over seeds, on this machine's CPU unless said otherwise; validations are in the seconds to the "
        "best validation and not in those per epoch. Methods without epochs show the seconds of their fit.",
        "The paper's seconds are whole runs on one GPU; it does not say whether up to the best validation or in all.",
        "A training that ran beside others of the same command (the column says so) is slower than it need be, as on a "
        "busy machine (its load at the end of each training is in the JSON file). For clean timings compute this table "
        "before the others, with --workers 1, on a machine that does nothing else.",
    )
    return Content(tuple(findings), tuple(tables), notes=notes, data=values)


def _published(data: DataCard, method: str) -> dict[str, int]:
    table = RUNTIME.get(data.name, {})
    return {name: table[name] for name in RUNTIME_ROWS.get(method, ()) if name in table}


def _table(data: DataCard, rows: dict[str, Row]) -> Table:
    return Table(f"{data.name}: runtime", HEADINGS, tuple(_line(data, *row) for row in rows.items()), texts=2)


def _line(data: DataCard, method: str, row: Row) -> tuple[str, ...]:
    published = _published(data, method)
    words = " / ".join(f"{value:,}" for value in published.values()) or MISSING
    if len(published) > 1:
        words += " (" + " / ".join(name.partition("(")[2].rstrip(")") for name in published) + ")"
    ours = [row.course(name) for name in ("seconds_per_epoch", "best_epoch", "seconds_to_best", "seconds")]
    per_epoch, best, to_best, in_all = (None if each is None else each.mean for each in ours)
    best_epoch = MISSING if not best else f"{best:.0f}"
    head = (METHOD_NAMES[method], _conditions(method, row), str(len(row.seeds)) if method in MODELS else MISSING)
    return (*head, seconds(per_epoch), best_epoch, seconds(to_best), seconds(in_all), words, shown(row.metric(NDCG)))


def _conditions(method: str, row: Row) -> str:
    """Return how a row's trainings ran: threads, and whether others ran at the same time."""
    if method not in MODELS:
        return "not available in this version"
    found: list[dict[str, Any]] = [result["conditions"] for result in row.results]
    if not found:
        return "not run"
    threads = "/".join(sorted({str(each["threads"]) for each in found}))
    most = max(each["workers"] for each in found)
    company = "alone" if most == 1 else f"beside {most - 1} other{'s' if most > 2 else ''}"
    device = "" if {each["device"] for each in found} <= {"cpu"} else ", " + found[0]["device"]
    return f"{threads} thread{'' if threads == '1' else 's'}, {company}{device}"


def _sentence(data: DataCard, rows: dict[str, Row]) -> list[str]:
    ours = rows["rankformer"].course("seconds_to_best") if "rankformer" in rows else None
    if ours is None:
        return []
    paper = _published(data, "rankformer").get("Rankformer")
    beside = f", the paper's GPU run took {paper} s" if paper else ""
    return [f"{data.name}: Rankformer reaches its best validation after {seconds(ours.mean)} s here{beside}."]
