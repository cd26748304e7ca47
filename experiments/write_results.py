"""Write RESULTS.md, the page of all measured tables and figures, from the JSON reports in experiments/results.

python experiments/write_results.py
"""

import json
from pathlib import Path
from typing import Any

from rankformer.errors import DataError
from rankformer.files import write_bytes_atomic
from rankformer.research.content import Table
from rankformer.research.report import FORMAT, as_text, bullets, table_lines, tables_of

ROOT = Path(__file__).parents[1]
FOLDER = "experiments/results"
Document = dict[str, Any]

# In the order of the page, with the heading of each.
SECTIONS = {
    "table-comparison": "Comparison",
    "table-ablation": "Ablation",
    "table-runtime": "Runtime",
    "figure-tau": "Tau and number of layers",
    "figure-alpha": "The offset alpha",
    "figure-random": "Layers without training",
    "lemma": "The lemma",
}
INTRODUCTION = """# Results

Made by `python experiments/write_results.py` from the reports in `{folder}`. The command above a table computes it,
from nothing but the package and the data: its configurations are part of the package. Test part at the best validation
NDCG@20; mean±standard deviation over seeds. *Paper* is the paper's table (Chen et al., WWW 2025), or on
yelp2018-lightgcn a public number named in the report. How the settings were found, and what did not work, is in
[experiments/LOG.md](experiments/LOG.md)."""


def read_reports(folder: Path) -> dict[str, Document]:
    """Return the experiments' reports in a folder by file stem, sorted; other JSON files are ignored."""
    reports = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is not JSON: {error}; run its `rankformer reproduce` again") from error
        if isinstance(document, dict) and document.get("format") == FORMAT:
            reports[path.stem] = document
    if not reports:
        raise DataError(f"{folder} holds no report of an experiment; `rankformer reproduce` writes them")
    return reports


def overview(reports: dict[str, Document], folder: str) -> str:
    """Return the page; its links write `folder` for where the reports, by file stem, and their pictures lie."""
    blocks = [INTRODUCTION.format(folder=folder)]
    for experiment, heading in SECTIONS.items():
        chosen = {stem: report for stem, report in reports.items() if report["experiment"] == experiment}
        if chosen:
            blocks.append(f"## {heading}")
        for stem, report in chosen.items():
            blocks += _section(stem, report, folder)
    return "\n\n".join(blocks) + "\n"


def _section(stem: str, report: Document, folder: str) -> list[str]:
    """Return the blocks of one report: findings, then the picture of a figure or the tables."""
    blocks = [f"    {report['command']}", f"{report['date']}; [{stem}.md]({folder}/{stem}.md) has the notes."]
    if report["trial"]:
        blocks.append(f"**A trial, not a result: {as_text(report['trial'])}.**")
    blocks.append(bullets(report["findings"]))
    if report["experiment"].startswith("figure"):
        blocks.append(f"![{as_text(report['title'])}]({folder}/{stem}.png)")
    elif report["experiment"].startswith("table"):
        tables = tables_of([Table(**table) for table in report["tables"]], report["commands"])
        blocks += [f"### {as_text(table.title)}\n\n{table_lines(table)}" for table in tables]
    blocks += [f"**{as_text(name)} was not run**: {as_text(reason)}" for name, reason in report["absent"]]
    return [block for block in blocks if block]


def main() -> None:
    """Read the reports and write the page at the root of the repository."""
    write_bytes_atomic(ROOT / "RESULTS.md", overview(read_reports(ROOT / FOLDER), FOLDER).encode())


if __name__ == "__main__":
    main()
