"""table-comparison and table-runtime: every method on every dataset, beside the paper's numbers.

Both show the same trainings: quality, with a test of each claimed improvement, and seconds.
"""

import shlex
from typing import Any

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
from rankformer.research.results import Dataset
from rankformer.research.statistics import (
    MISSING,
    Plan,
    Row,
    Rows,
    p_value,
    paired_test,
    rows_of,
    score_columns,
    seconds,
)

SCORES = ("method", "seeds", "NDCG paper", "NDCG ours", "gap", "recall paper", "recall ours")
TESTS = ("comparison", "metric", "ours", "95% interval", "paper", "p")
TIMES = ("method", "seeds", "s per epoch", "best epoch", "s to best", "s in all", "paper's s (GPU)")
# Which method is tested against the best of which others; the first two claims are the paper's.
PLAIN_RIVALS = "the paper's methods without contrastive loss"
CONTRASTIVE_RIVALS = "the paper's contrastive methods"
OTHERS = "the methods that the paper leaves out"
CLAIMS = (
    ("rankformer", PLAIN_RIVALS),
    ("rankformer-cl", CONTRASTIVE_RIVALS),
    ("rankformer", OTHERS),
    ("rankformer-cl", OTHERS),
)
COMPARISON_NOTES = (
    "Ours: mean±standard deviation over seeds (one where nothing is drawn at random), test part, at the best "
    "validation NDCG@20, training items left out of the lists. Recall is recall_capped@20, which divides by "
    "min(20, test interactions) as the paper does{other}.",
    "Tests: paired t-test over users (two-sided), each user's mean over seeds under one method less that under "
    "the other; it tests the difference of means that the table claims. Wilcoxon's signed ranks would drop the "
    "many users whom both methods serve alike. Users are the sample; no correction for several tests is made.",
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


def plan_comparison(request: Request) -> Plan:
    """Return the trainings of both tables by dataset and method."""
    return {(data.name, method): request.row(data, method) for data in request.datasets for method in request.rows}


def show_comparison(request: Request, rows: Rows) -> Content:
    """Return the scores on each dataset, the tested improvements, and what computes each row."""
    tables: list[Table] = []
    findings: list[str] = []
    values: dict[str, Any] = {}
    commands: list[tuple[str, str]] = []
    for data in request.datasets:
        measured = rows_of(data.name, rows)
        improvements = _improvements(data.name, measured)
        tables.append(_score_table(data.name, measured))
        if improvements:
            tables.append(_improvement_table(data.name, improvements))
            findings += [_sentence(data.name, each) for each in improvements if each["metric"] == NDCG]
        shown = {method: _row_data(request, data, method, row) for method, row in measured.items()}
        commands += [(f"{_title(method)}, {data.name}", row["command"]) for method, row in shown.items()]
        tests = [{**each, "test": each["test"]._asdict()} for each in improvements]
        values[data.name] = {"rows": shown, "improvements": tests}
    special = [NOTES[data.name] for data in request.datasets if data.name in NOTES]
    other = ", and recall@20 on yelp2018-lightgcn" if special else ""
    notes = (*special, *(note.replace("{other}", other) for note in COMPARISON_NOTES), *_without_result(request, rows))
    return Content(tuple(findings), tuple(tables), notes=notes, commands=tuple(commands), data=values)


def show_runtime(request: Request, rows: Rows) -> Content:
    """Return seconds per epoch and up to the best validation on each dataset."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        measured = rows_of(data.name, rows)
        tables.append(_runtime_table(data.name, measured))
        values[data.name] = {"rows": {method: row.to_dict() for method, row in measured.items()}}
        ours = measured["rankformer"].history("seconds_to_best") if "rankformer" in measured else None
        if ours is not None:
            paper = RUNTIME.get(data.name, {}).get("Rankformer")
            beside = f", the paper's GPU run took {paper} s" if paper else ""
            findings.append(
                f"{data.name}: Rankformer reaches its best validation after {seconds(ours)} s here{beside}."
            )
    return Content(tuple(findings), tuple(tables), notes=(*RUNTIME_NOTES, *_without_result(request, rows)), data=values)


def _improvements(dataset: str, rows: dict[str, Row]) -> list[dict[str, Any]]:
    """Return the test of each claim whose method and at least one baseline were measured, on both metrics.

    The best baseline is that by the metric of the test, and may differ between metrics.
    """
    found = []
    for method, baselines in CLAIMS:
        printed = IMPROVEMENT.get(dataset, {}).get(method) if baselines != OTHERS else None
        for column, metric in enumerate((NDCG, recall_metric(dataset))):
            users = {name: row.per_user(metric) for name, row in rows.items()}
            means = {n: float(each.mean()) for n, each in users.items() if each is not None and _group(n) == baselines}
            ours = users.get(method)
            if ours is None or not means:
                continue
            best = max(means, key=means.__getitem__)
            test = paired_test(ours, users[best])  # type: ignore[arg-type]  # those of `means` are not None
            found.append(
                {
                    "method": method,
                    "baselines": baselines,
                    "best_baseline": best,
                    "metric": metric,
                    "test": test,
                    "percent": 100 * test.difference / means[best] if means[best] else 0.0,  # of the baseline's mean
                    "published_percent": printed[column] if printed else None,
                }
            )
    return found


def _group(method: str) -> str:
    """Return among which baselines a method counts."""
    if method not in METHODS:
        return OTHERS
    if method in ("rankformer", "rankformer-cl"):
        return ""
    return CONTRASTIVE_RIVALS if method in CONTRASTIVE else PLAIN_RIVALS


def _score_table(dataset: str, rows: dict[str, Row]) -> Table:
    recall, published = recall_metric(dataset), COMPARISON.get(dataset, {})
    lines = []
    for method, row in rows.items():
        title = _title(method) + (" (*)" if row.failures else "")
        lines.append((title, str(len(row.seeds)), *score_columns(row, published.get(method), recall)))
    failed = " ((*) stopped early)" if any(row.failures for row in rows.values()) else ""
    return Table(f"{dataset}: NDCG@20 and {recall}{failed}", SCORES, tuple(lines))


def _improvement_table(dataset: str, improvements: list[dict[str, Any]]) -> Table:
    lines = []
    for each in improvements:
        test, percent, paper = each["test"], each["percent"], each["published_percent"]
        scale = percent / test.difference if test.difference else 0.0  # from a difference to per cent
        lines.append(
            (
                f"{_title(each['method'])} over {_title(each['best_baseline'])}",
                "NDCG" if each["metric"] == NDCG else "recall",
                f"{percent:+.2f}%",
                f"{scale * test.low:+.1f} to {scale * test.high:+.1f}%",
                MISSING if paper is None else f"{paper:+.2f}%",
                p_value(test.p),
            )
        )
    users = improvements[0]["test"].users
    return Table(f"{dataset}: improvement over the best baseline ({users:,} users)", TESTS, tuple(lines), texts=2)


def _sentence(dataset: str, improvement: dict[str, Any]) -> str:
    test = improvement["test"]
    verb = "improves on" if test.difference > 0 else "is below"
    sure = "significant" if test.p < 0.05 else "not significant"
    return (
        f"{dataset}: {_title(improvement['method'])} {verb} {_title(improvement['best_baseline'])}, the best of "
        f"{improvement['baselines']}, by {abs(improvement['percent']):.2f}% of NDCG@20 ({sure} at p < 0.05, "
        f"p = {p_value(test.p)})."
    )


def _runtime_table(dataset: str, rows: dict[str, Row]) -> Table:
    lines = []
    for method, row in rows.items():
        times = [seconds(row.history(name)) for name in ("seconds_per_epoch", "seconds_to_best", "seconds")]
        best = row.history("best_epoch")
        published = RUNTIME.get(dataset, {})
        paper = " / ".join(f"{published[name]:,}" for name in RUNTIME_ROWS.get(method, ()) if name in published)
        epoch = f"{best:.0f}" if best else MISSING
        lines.append((_title(method), str(len(row.seeds)), times[0], epoch, *times[1:], paper or MISSING))
    found = [result["conditions"] for row in rows.values() for result in row.results]
    conditions = ""
    if found:
        threads = " or ".join(sorted({str(each["threads"]) for each in found}))
        devices = ", ".join(sorted({each["device"] for each in found}))
        most = max(each["workers"] for each in found)
        conditions = f" ({devices}; threads each: {threads}; trainings at a time: up to {most})"
    return Table(f"{dataset}: runtime{conditions}", TIMES, tuple(lines))


def _without_result(request: Request, rows: Rows) -> list[str]:
    notes = []
    for data in request.datasets:
        missing = [_title(method) for method in request.rows if not rows[data.name, method].seeds]
        if missing:
            notes.append(f"{data.name}: no result for {', '.join(missing)}.")
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
