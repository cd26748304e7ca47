"""All exhibits on one page: RESULTS.md, made from the JSON files of their reports and from nothing else."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankformer.errors import DataError
from rankformer.research.content import Table
from rankformer.research.markdown import as_text, table_lines
from rankformer.research.published import METHOD_NAMES, NDCG, recall_metric
from rankformer.research.summary import difference, number, seconds, shown, spread_of

Document = dict[str, Any]

# In the order of the page, with what stands above each.
SECTIONS = {
    "table-comparison": "Comparison",
    "table-ablation": "Ablation",
    "table-runtime": "Runtime",
    "figure-tau": "Step size and depth",
    "figure-alpha": "The offset alpha",
    "figure-random": "Layers without training",
    "lemma": "The lemma",
}
INTRODUCTION = """# Results

Made by `python experiments/write_results.py` from the reports in `{folder}`; every number was measured by the command
above its table (`--report-only` shows what earlier runs left in the cells; without it they are computed). Test part at
the best validation NDCG@20; mean ± standard deviation over seeds. *Published* is the paper's table (Chen et al., WWW
2025), or on yelp2018-lightgcn a public number named in the report. How the settings were found, and what did not work,
is in [experiments/LOG.md](experiments/LOG.md)."""


def read_reports(folder: Path) -> dict[str, Document]:
    """Return the exhibits' reports in a folder by file stem, sorted; other JSON files are passed over."""
    reports = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is no JSON: {error}; run its `rankformer reproduce` again") from error
        if isinstance(document, dict) and document.get("format") == "rankformer-exhibit":
            reports[path.stem] = document
    if not reports:
        raise DataError(f"{folder} holds no report of an exhibit; `rankformer reproduce` writes them")
    return reports


def overview(reports: dict[str, Document], folder: str) -> str:
    """Return the page.

    Args:
        reports: by file stem, as `read_reports` returns them.
        folder: where they and their pictures lie, as the page's links write it.
    """
    blocks = [INTRODUCTION.format(folder=folder)]
    for exhibit, heading in SECTIONS.items():
        chosen = {stem: report for stem, report in reports.items() if report["exhibit"] == exhibit}
        if chosen:
            blocks.append(f"## {heading}")
            for stem, report in chosen.items():
                blocks += _section(stem, report, folder)
    return "\n\n".join(blocks) + "\n"


def _section(stem: str, report: Document, folder: str) -> list[str]:
    """Return the blocks of one report."""
    link = f"[{stem}.md]({folder}/{stem}.md)"
    blocks = [f"`{report['command']}`, {report['date']}: {link}, with the tests and the notes."]
    if report["trial"]:
        blocks.append(f"**A trial, not a result: {as_text(report['trial'])}.**")
    if report["findings"]:
        blocks.append("\n".join(f"- {as_text(finding)}" for finding in report["findings"]))
    if report["exhibit"].startswith("figure"):
        blocks.append(f"![{as_text(report['title'])}]({folder}/{stem}.png)")
    make = {"table-comparison": _comparison, "table-ablation": _ablation, "table-runtime": _runtime}
    tables: Sequence[Table] = make[report["exhibit"]](report["data"]) if report["exhibit"] in make else ()
    blocks += [f"### {as_text(table.title)}\n\n{table_lines(table)}" for table in tables]
    blocks += [f"**{as_text(name)} was not run**: {as_text(reason)}" for name, reason in report["absent"]]
    return blocks


def _comparison(data: Document) -> list[Table]:
    headings = ("method", "command", "NDCG@20 published", "ours", "difference", "recall published", "ours ", "seeds")
    tables = []
    for dataset, content in data.items():
        recall = recall_metric(dataset)
        rows = tuple(
            (METHOD_NAMES[method], row["command"], *_scores(row, recall), str(len(row["seeds"])))
            for method, row in content["rows"].items()
            if row["seeds"]
        )
        missing = [METHOD_NAMES[method] for method, row in content["rows"].items() if not row["seeds"]]
        without = f" (not run: {', '.join(missing)})" if missing else ""
        tables.append(Table(f"{dataset}: NDCG@20 and {recall}{without}", headings, rows, texts=2))
    return tables


def _ablation(data: Document) -> list[Table]:
    headings = ("variant", "NDCG@20 published", "ours", "difference", "recall published", "ours ", "seeds")
    tables = []
    for dataset, content in data.items():
        recall = recall_metric(dataset)
        rows = tuple((name, *_scores(row, recall), str(len(row["seeds"]))) for name, row in content["rows"].items())
        tables.append(Table(f"{dataset}: NDCG@20 and {recall}", headings, rows))
    return tables


def _runtime(data: Document) -> list[Table]:
    headings = ("method", "seconds per epoch", "seconds to best", "seconds in all", "paper's seconds (GPU)", "seeds")
    tables = []
    for dataset, methods in data.items():
        rows = []
        for method, row in methods.items():
            if not row["seeds"]:
                continue
            courses = [run["course"] for run in row["runs"]]
            means = [_mean([course[name] for course in courses]) for name in _COURSE]
            paper = " / ".join(f"{value:,}" for value in row["published"].values()) or "-"
            rows.append((METHOD_NAMES[method], *map(seconds, means), paper, str(len(row["seeds"]))))
        tables.append(Table(f"{dataset}: runtime{_conditions(methods)}", headings, tuple(rows)))
    return tables


def _conditions(methods: Document) -> str:
    """Return how many threads the trainings had and how many ran at a time."""
    found = [run["conditions"] for row in methods.values() for run in row["runs"]]
    if not found:
        return ""
    threads = " or ".join(map(str, sorted({each["threads"] for each in found})))
    return f" (threads each: {threads}; at a time: up to {max(each['workers'] for each in found)})"


_COURSE = ("seconds_per_epoch", "seconds_to_best", "seconds")


def _mean(values: list[float | None]) -> float | None:
    spread = spread_of([value for value in values if value is not None])
    return spread.mean if spread else None


def _scores(row: Document, recall: str) -> tuple[str, ...]:
    """Return published and ours with the difference of NDCG@20, and published and ours of the recall named."""
    published = row["published"] or {"ndcg": None, "recall": None}
    measured = [run["metrics"] for run in row["runs"] if run["metrics"]]
    ours = [spread_of([metrics[name] for metrics in measured]) for name in (NDCG, recall)]
    first = (number(published["ndcg"]), shown(ours[0]), difference(ours[0], published["ndcg"]))
    return (*first, number(published["recall"]), shown(ours[1]))
