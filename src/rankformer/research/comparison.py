"""table-comparison and table-runtime: every method on every dataset, beside the paper's numbers.

Both show the same trainings: quality, with a test of each claimed improvement, and seconds.
"""

import shlex
from typing import Any, NamedTuple

from rankformer.models.registry import model_class
from rankformer.research.content import Content, Table
from rankformer.research.published import (
    COMPARISON,
    CONTRASTIVE,
    IMPROVEMENT,
    METHODS,
    NDCG,
    NOTES,
    RUNTIME,
    RUNTIME_ROWS,
    recall_metric,
)
from rankformer.research.request import Request
from rankformer.research.results import Computation, Dataset, Results
from rankformer.research.statistics import (
    MISSING,
    PairedTest,
    Row,
    p_value,
    paired_test,
    score_columns,
    seconds,
)

SCORES = ("method", "seeds", "NDCG paper", "NDCG ours", "gap", "recall paper", "recall ours")
TESTS = ("comparison", "metric", "ours", "95% interval", "paper", "p")
TIMES = ("method", "seeds", "s per epoch", "best epoch", "s to best", "s in all", "paper's s (GPU)")
# Which method is tested against the best of which others; the first two claims are the paper's.
PLAIN_RIVALS, CONTRASTIVE_RIVALS, OTHERS = (
    "the paper's methods without contrastive loss",
    "the paper's contrastive methods",
    "the methods that the paper leaves out",
)
CLAIMS = (
    ("rankformer", PLAIN_RIVALS),
    ("rankformer-cl", CONTRASTIVE_RIVALS),
    ("rankformer", OTHERS),
    ("rankformer-cl", OTHERS),
)


class Improvement(NamedTuple):
    """A tested improvement of a method over the best of some baselines."""

    method: str
    baselines: str
    best_baseline: str
    metric: str
    test: PairedTest
    percent: float  # of the baseline's mean
    published_percent: float | None


def comparison_computations(request: Request) -> list[Computation]:
    """Return the trainings of both tables."""
    return [each for data in request.datasets for method in request.rows for each in request.row(data, method)]


def show_comparison(request: Request, results: Results) -> Content:
    """Return the scores on each dataset, the tested improvements, and what computes each row."""
    tables: list[Table] = []
    findings: list[str] = []
    values: dict[str, Any] = {}
    for data in request.datasets:
        rows = _rows(request, data, results)
        improvements = _tested_improvements(data.name, rows)
        tables.append(_score_table(data.name, rows))
        if improvements:
            tables.append(_improvement_table(data.name, improvements))
            findings += [_sentence(data.name, each) for each in improvements if each.metric == NDCG]
        values[data.name] = {
            "rows": {method: _row_data(request, data, method, row) for method, row in rows.items()},
            "improvements": [{**each._asdict(), "test": each.test._asdict()} for each in improvements],
        }
    names = [data.name for data in request.datasets]
    notes = (*_comparison_notes(names), *_without_result(request, results))
    commands = tuple(
        (f"{_title(method)}, {dataset}", row["command"])
        for dataset, content in values.items()
        for method, row in content["rows"].items()
    )
    return Content(tuple(findings), tuple(tables), notes=notes, commands=commands, data=values)


def show_runtime(request: Request, results: Results) -> Content:
    """Return seconds per epoch and up to the best validation on each dataset."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        rows = _rows(request, data, results)
        tables.append(_runtime_table(data.name, rows))
        findings += _runtime_sentences(data.name, rows)
        values[data.name] = {"rows": {method: row.to_dict() for method, row in rows.items()}}
    notes = (*RUNTIME_NOTES, *_without_result(request, results))
    return Content(tuple(findings), tuple(tables), notes=notes, data=values)


def _comparison_notes(datasets: list[str]) -> tuple[str, ...]:
    special = tuple(NOTES[name] for name in datasets if name in NOTES)
    return (
        *special,
        "Ours: mean±standard deviation over seeds (one where nothing is drawn at random), test part, at the best "
        "validation NDCG@20, training items left out of the lists. Recall is recall_capped@20, which divides by "
        "min(20, test interactions) as the paper does" + (", and recall@20 on yelp2018-lightgcn." if special else "."),
        "Tests: paired t-test over users (two-sided), each user's mean over seeds under one method less that under "
        "the other; it tests the difference of means that the table claims. Wilcoxon's signed ranks would drop the "
        "many users whom both methods serve alike. Users are the sample; no correction for several tests is made.",
    )


def _tested_improvements(dataset: str, rows: dict[str, Row]) -> list[Improvement]:
    """Return the test of each claim whose method and at least one baseline were measured, on both metrics."""
    metrics = (NDCG, recall_metric(dataset))
    found = [
        _tested(dataset, rows, *claim, column, metric) for claim in CLAIMS for column, metric in enumerate(metrics)
    ]
    return [each for each in found if each is not None]


def _tested(
    dataset: str, rows: dict[str, Row], method: str, baselines: str, column: int, metric: str
) -> Improvement | None:
    """Return the improvement over the best baseline by this metric; that baseline may differ between metrics."""
    measured = {name: rows[name].per_user(metric) for name in rows if name == method or _group(name) == baselines}
    values = {name: users for name, users in measured.items() if users is not None}
    others = {name: float(users.mean()) for name, users in values.items() if name != method}
    if method not in values or not others:
        return None
    best = max(others, key=others.__getitem__)
    test = paired_test(values[method], values[best])
    percent = 100 * test.difference / others[best] if others[best] else 0.0
    printed = IMPROVEMENT.get(dataset, {}).get(method) if baselines != OTHERS else None
    return Improvement(method, baselines, best, metric, test, percent, printed[column] if printed else None)


def _group(method: str) -> str:
    """Return among which baselines a method counts."""
    if method not in METHODS:
        return OTHERS
    if method in ("rankformer", "rankformer-cl"):
        return ""
    return CONTRASTIVE_RIVALS if method in CONTRASTIVE else PLAIN_RIVALS


def _score_table(dataset: str, rows: dict[str, Row]) -> Table:
    recall, published = recall_metric(dataset), COMPARISON.get(dataset, {})
    lines = tuple(
        (
            _title(method) + (" (*)" if row.failures else ""),
            str(len(row.seeds)),
            *score_columns(row, published.get(method), recall),
        )
        for method, row in rows.items()
    )
    failed = " ((*) stopped early)" if any(row.failures for row in rows.values()) else ""
    return Table(f"{dataset}: NDCG@20 and {recall}{failed}", SCORES, lines)


def _improvement_table(dataset: str, improvements: list[Improvement]) -> Table:
    rows = tuple(
        (
            f"{_title(each.method)} over {_title(each.best_baseline)}",
            "NDCG" if each.metric == NDCG else "recall",
            f"{each.percent:+.2f}%",
            f"{_percent(each, each.test.low)} to {_percent(each, each.test.high)}%",
            MISSING if each.published_percent is None else f"{each.published_percent:+.2f}%",
            p_value(each.test.p),
        )
        for each in improvements
    )
    users = improvements[0].test.users
    return Table(f"{dataset}: improvement over the best baseline ({users:,} users)", TESTS, rows, texts=2)


def _percent(improvement: Improvement, difference: float) -> str:
    """Return a difference of means in per cent of the baseline's mean."""
    scale = improvement.percent / improvement.test.difference if improvement.test.difference else 0.0
    return f"{scale * difference:+.1f}"


def _sentence(dataset: str, improvement: Improvement) -> str:
    verb = "improves on" if improvement.test.difference > 0 else "is below"
    sure = "significant" if improvement.test.p < 0.05 else "not significant"
    return (
        f"{dataset}: {_title(improvement.method)} {verb} {_title(improvement.best_baseline)}, the best of "
        f"{improvement.baselines}, by {abs(improvement.percent):.2f}% of NDCG@20 ({sure} at p < 0.05, "
        f"p = {p_value(improvement.test.p)})."
    )


RUNTIME_NOTES = (
    "Ours: means over seeds; validations are in the seconds to the best validation and not in those per epoch. Methods "
    "without epochs show the seconds of their fit.",
    "The paper's seconds are whole runs on one GPU (LightGCN: its source code / the authors' own); it does not say "
    "whether up to the best validation or in all.",
    "A training that ran beside others of the same command (the title says so) is slower than it need be, as on a busy "
    "machine (its load at the end of each training is in the JSON file). For clean timings compute this table before "
    "the others, with --workers 1, on a machine that does nothing else.",
)


def _runtime_table(dataset: str, rows: dict[str, Row]) -> Table:
    lines = []
    for method, row in rows.items():
        times = [row.history(name) for name in ("seconds_per_epoch", "seconds_to_best", "seconds")]
        per_epoch, to_best, in_all = map(seconds, times)
        best = row.history("best_epoch")
        paper = " / ".join(f"{value:,}" for value in _published_seconds(dataset, method).values()) or MISSING
        epoch = f"{best:.0f}" if best else MISSING
        lines.append((_title(method), str(len(row.seeds)), per_epoch, epoch, to_best, in_all, paper))
    found = [result["conditions"] for row in rows.values() for result in row.results]
    conditions = ""
    if found:
        threads = " or ".join(sorted({str(each["threads"]) for each in found}))
        devices = ", ".join(sorted({each["device"] for each in found}))
        most = max(each["workers"] for each in found)
        conditions = f" ({devices}; threads each: {threads}; trainings at a time: up to {most})"
    return Table(f"{dataset}: runtime{conditions}", TIMES, tuple(lines))


def _runtime_sentences(dataset: str, rows: dict[str, Row]) -> list[str]:
    ours = rows["rankformer"].history("seconds_to_best") if "rankformer" in rows else None
    if ours is None:
        return []
    paper = _published_seconds(dataset, "rankformer").get("Rankformer")
    beside = f", the paper's GPU run took {paper} s" if paper else ""
    return [f"{dataset}: Rankformer reaches its best validation after {seconds(ours)} s here{beside}."]


def _published_seconds(dataset: str, method: str) -> dict[str, int]:
    table = RUNTIME.get(dataset, {})
    return {name: table[name] for name in RUNTIME_ROWS.get(method, ()) if name in table}


def _rows(request: Request, data: Dataset, results: Results) -> dict[str, Row]:
    """Return the rows asked for that have a result."""
    rows = {method: Row.of(request.row(data, method), results) for method in request.rows}
    return {method: row for method, row in rows.items() if row.seeds}


def _without_result(request: Request, results: Results) -> list[str]:
    notes = []
    for data in request.datasets:
        missing = [name for name in request.rows if not Row.of(request.row(data, name), results).seeds]
        if missing:
            notes.append(f"{data.name}: no result for {', '.join(map(_title, missing))}.")
    return notes


def _row_data(request: Request, data: Dataset, method: str, row: Row) -> dict[str, Any]:
    published = COMPARISON.get(data.name, {}).get(method)
    words = ["rankformer", "reproduce", "table-comparison", "--dataset", data.source.source, "--methods", method]
    words += ["--seeds", str(len(row.seeds))] + (["--configs", request.configs] if request.configs != "best" else [])
    return {
        "published": published._asdict() if published else None,
        "settings": request.settings(data, method),
        "settings_from": request.settings_of(data.name, method).origin,
        "command": shlex.join(words),
        **row.to_dict(),
    }


def _title(method: str) -> str:
    return model_class(method).title
