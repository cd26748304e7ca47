"""table-comparison, table-runtime and table-ablation: rows of trainings beside the paper's numbers.

The first two show the same trainings of every method: quality, with a test of each claimed improvement, and seconds.
The third has Rankformer with one term of its weights removed at a time, its relatives of Table 1, and other layers.
"""

import shlex
from collections.abc import Callable
from typing import Any

from rankformer.evaluation.comparison import p_value, paired_test
from rankformer.models.registry import model_class
from rankformer.research import published
from rankformer.research.content import Content, Table
from rankformer.research.published import NDCG, Score, notes_of, recall_metric
from rankformer.research.request import Request
from rankformer.research.results import Dataset
from rankformer.research.statistics import (
    MISSING,
    Plan,
    Row,
    Rows,
    rows_of,
    score_columns,
    seconds,
)

SCORES = ("NDCG paper", "NDCG ours", "gap", "recall paper", "recall ours")
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
FULL = "full"
# The paper's variants, by the settings that make them.
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {},
    "w/o negative pairs": {"negatives": "none"},
    "w/o benchmark": {"benchmark": False},
    "w/o offset": {"alpha": 0.0},
    "w/o normalization": {"normalize": False},
}
# Table 1, which prints no numbers: the layer with the weights of `RankWeights.gat` and `RankWeights.transformer`.
RELATIVES: dict[str, dict[str, Any]] = {
    "GAT": {"negatives": "none", "benchmark": False, "alpha": 0.0},
    "Transformer": {"negatives": "pull", "benchmark": False, "alpha": 0.0},
}
# What the paper leaves open: the sign of the layer's curvature, and a layer for another objective.
BEYOND: dict[str, dict[str, Any]] = {
    "no curvature": {"curvature": 0},
    "curvature of BPR": {"curvature": -1},
    "softmax layer": {"layer": "softmax"},
}
ALL = VARIANTS | RELATIVES | BEYOND


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
        failed = " ((*) stopped early)" if any(row.failures for row in measured.values()) else ""
        title = f"{data.name}: NDCG@20 and {recall_metric(data.name)}{failed}"
        lines = _scores(data.name, measured, published.COMPARISON, _title)
        tables.append(Table(title, ("method", "seeds", *SCORES), lines))
        tests = _improvements(data.name, measured)
        if tests:
            title = f"{data.name}: improvement over the best baseline ({tests[0]['test']['users']:,} users)"
            tables.append(Table(title, TESTS, [_improvement_line(each) for each in tests], texts=2))
            findings += [f"{data.name}: {_sentence(each)}" for each in tests if each["metric"] == NDCG]
        shown = {method: _row_data(request, data, method, row) for method, row in measured.items()}
        commands += [(f"{_title(method)}, {data.name}", row["command"]) for method, row in shown.items()]
        values[data.name] = {"rows": shown, "improvements": tests}
    special = [published.NOTES[data.name] for data in request.datasets if data.name in published.NOTES]
    other = ", and recall@20 on yelp2018-lightgcn" if special else ""
    notes = [*special, *notes_of("table-comparison", other=other), *_without_result(request, rows)]
    return Content(tuple(findings), tables, notes=notes, commands=commands, data=values)


def show_runtime(request: Request, rows: Rows) -> Content:
    """Return seconds per epoch and up to the best validation on each dataset."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        measured = rows_of(data.name, rows)
        tables.append(_runtime_table(data.name, measured))
        values[data.name] = {"rows": {method: row.to_dict() for method, row in measured.items()}}
        ours = measured["rankformer"].history("seconds_to_best") if "rankformer" in measured else None
        if ours is not None:
            paper = published.RUNTIME.get(data.name, {}).get("Rankformer")
            beside = f", the paper's GPU run took {paper} s" if paper else ""
            findings.append(
                f"{data.name}: Rankformer reaches its best validation after {seconds(ours)} s here{beside}."
            )
    notes = [*notes_of("table-runtime"), *_without_result(request, rows)]
    return Content(tuple(findings), tables, notes=notes, data=values)


def plan_ablation(request: Request) -> Plan:
    """Return the trainings of the table by dataset and variant."""
    return {
        (data.name, variant): request.row(data, "rankformer", variant if changes else "", **changes)
        for data in request.datasets
        for variant, changes in ALL.items()
    }


def show_ablation(request: Request, rows: Rows) -> Content:
    """Return one table per dataset, and whether the order of effects is the paper's."""
    tables, findings, values = [], [], {}
    for data in request.datasets:
        measured = rows_of(data.name, rows)
        lines = _scores(data.name, measured, published.ABLATION)
        seeds = " or ".join(sorted({line[1] for line in lines}, key=int)) or "none"
        failed = "; (*) stopped early" if any(row.failures for row in measured.values()) else ""
        title = f"{data.name}: NDCG@20 and {recall_metric(data.name)} (seeds: {seeds}{failed})"
        tables.append(Table(title, ("variant", *SCORES), [(line[0], *line[2:]) for line in lines]))
        findings.append(_order_of_effects(data.name, measured))
        values[data.name] = {
            "settings": request.settings(data, "rankformer"),
            "rows": {variant: {"changes": ALL[variant], **row.to_dict()} for variant, row in measured.items()},
        }
    changed = [
        f"{variant}: {', '.join(f'{name} = {value}' for name, value in changes.items())}."
        for variant, changes in ALL.items()
        if changes
    ]
    origins = f"Settings apart from the one changed: {request.origins('rankformer')}."
    return Content(tuple(findings), tables, notes=[origins, *changed, *notes_of("table-ablation")], data=values)


def _improvements(dataset: str, rows: dict[str, Row]) -> list[dict[str, Any]]:
    """Return the test of each claim whose method and at least one baseline were measured, on both metrics.

    The best baseline is that by the metric of the test, and may differ between metrics.
    """
    found = []
    for method, baselines in CLAIMS:
        printed = published.IMPROVEMENT.get(dataset, {}).get(method) if baselines != OTHERS else None
        for column, metric in enumerate((NDCG, recall_metric(dataset))):
            users = {name: row.per_user(metric) for name, row in rows.items()}
            means = {n: float(each.mean()) for n, each in users.items() if each is not None and _group(n) == baselines}
            ours = users.get(method)
            if ours is None or not means:
                continue
            best = max(means, key=means.__getitem__)
            test = paired_test(ours, users[best])  # type: ignore[arg-type]  # those of `means` are not None
            percent = 100 * test.difference / means[best] if means[best] else 0.0  # of the baseline's mean
            paper = printed[column] if printed else None
            said = {"method": method, "baselines": baselines, "best_baseline": best, "metric": metric}
            found.append({**said, "test": test._asdict(), "percent": percent, "published_percent": paper})
    return found


def _group(method: str) -> str:
    """Return among which baselines a method counts."""
    if method not in published.METHODS:
        return OTHERS
    if method in ("rankformer", "rankformer-cl"):
        return ""
    return CONTRASTIVE_RIVALS if method in published.CONTRASTIVE else PLAIN_RIVALS


def _scores(
    dataset: str, rows: dict[str, Row], paper: dict[str, dict[str, Score]], title: Callable[[str], str] = str
) -> list[tuple[str, ...]]:
    """Return a line for each row: its name, marked where a training stopped early, its seeds, and the scores."""
    recall, printed = recall_metric(dataset), paper.get(dataset, {})
    return [
        (
            f"{title(name)} (*)" if row.failures else title(name),
            str(len(row.seeds)),
            *score_columns(row, printed.get(name), recall),
        )
        for name, row in rows.items()
    ]


def _improvement_line(improvement: dict[str, Any]) -> tuple[str, ...]:
    test, percent, paper = (improvement[name] for name in ("test", "percent", "published_percent"))
    scale = percent / test["difference"] if test["difference"] else 0.0  # from a difference to per cent
    return (
        f"{_title(improvement['method'])} over {_title(improvement['best_baseline'])}",
        "NDCG" if improvement["metric"] == NDCG else "recall",
        f"{percent:+.2f}%",
        f"{scale * test['low']:+.1f} to {scale * test['high']:+.1f}%",
        MISSING if paper is None else f"{paper:+.2f}%",
        p_value(test["p"]),
    )


def _sentence(improvement: dict[str, Any]) -> str:
    test = improvement["test"]
    verb = "improves on" if test["difference"] > 0 else "is below"
    sure = "significant" if test["p"] < 0.05 else "not significant"
    return (
        f"{_title(improvement['method'])} {verb} {_title(improvement['best_baseline'])}, the best of "
        f"{improvement['baselines']}, by {abs(improvement['percent']):.2f}% of NDCG@20 ({sure} at p < 0.05, "
        f"p = {p_value(test['p'])})."
    )


def _runtime_table(dataset: str, rows: dict[str, Row]) -> Table:
    lines = []
    for method, row in rows.items():
        times = [seconds(row.history(name)) for name in ("seconds_per_epoch", "seconds_to_best", "seconds")]
        best = row.history("best_epoch")
        printed = published.RUNTIME.get(dataset, {})
        paper = " / ".join(f"{printed[name]:,}" for name in published.RUNTIME_ROWS.get(method, ()) if name in printed)
        epoch = f"{best:.0f}" if best else MISSING
        lines.append((_title(method), str(len(row.seeds)), times[0], epoch, *times[1:], paper or MISSING))
    found = [result["conditions"] for row in rows.values() for result in row.results]
    conditions = ""
    if found:
        threads = " or ".join(sorted({str(each["threads"]) for each in found}))
        devices = ", ".join(sorted({each["device"] for each in found}))
        most = max(each["workers"] for each in found)
        conditions = f" ({devices}; threads each: {threads}; trainings at a time: up to {most})"
    return Table(f"{dataset}: runtime{conditions}", TIMES, lines)


def _without_result(request: Request, rows: Rows) -> list[str]:
    notes = []
    for data in request.datasets:
        missing = [_title(method) for method in request.rows if not rows[data.name, method].seeds]
        if missing:
            notes.append(f"{data.name}: no result for {', '.join(missing)}.")
    return notes


def _row_data(request: Request, data: Dataset, method: str, row: Row) -> dict[str, Any]:
    printed = published.COMPARISON.get(data.name, {}).get(method)
    words = ["rankformer", "reproduce", "table-comparison", "--dataset", data.source.source, "--methods", method]
    words += ["--seeds", str(len(row.seeds))] + (["--configs", request.configs] if request.configs != "best" else [])
    return {
        "published": printed._asdict() if printed else None,
        "settings": request.settings(data, method),
        "settings_from": request.settings_of(data.name, method).origin,
        "command": shlex.join(words),
        **row.to_dict(),
    }


def _title(method: str) -> str:
    return model_class(method).title


def _order_of_effects(dataset: str, rows: dict[str, Row]) -> str:
    """Return a sentence on whether the variants are in the paper's order by NDCG@20, below the full model."""
    scores = {variant: rows[variant].metric(NDCG) for variant in VARIANTS if variant in rows}
    means = {variant: score.mean for variant, score in scores.items() if score is not None}
    if len(means) < len(VARIANTS):
        absent = ", ".join(variant for variant in VARIANTS if variant not in means)
        return f"{dataset}: the order of effects is open, nothing was measured for {absent}."
    ours = sorted(means, key=means.__getitem__)
    if dataset not in published.ABLATION:
        return f"{dataset}: from worst to best {', '.join(ours)}."
    papers = sorted(VARIANTS, key=lambda variant: published.ABLATION[dataset][variant].ndcg)
    if ours == papers:
        return f"{dataset}: the paper's order of effects, from worst to best {', '.join(ours)}."
    terms = [variant for variant in ours if variant != FULL]
    if terms == [variant for variant in papers if variant != FULL] and papers[-1] == FULL:
        above = ", ".join(f"{variant} ({means[variant]:.4f})" for variant in ours[ours.index(FULL) + 1 :])
        return (
            f"{dataset}: the four terms in the paper's order, from worst to best {', '.join(terms)}, "
            f"but not below the full model ({means[FULL]:.4f}): {above}."
        )
    orders = f"from worst to best ours is {', '.join(ours)}; the paper's is {', '.join(papers)}"
    return f"{dataset}: not the paper's order of effects; {orders}."
