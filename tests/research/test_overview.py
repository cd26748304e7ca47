import re
import runpy
from pathlib import Path

import pytest

from rankformer.errors import DataError
from rankformer.research.experiments import EXPERIMENTS
from rankformer.research.report import head_of, write_report

from .conftest import called, made_up

ROOT = Path(__file__).parents[2]
FOLDER = "experiments/results"
SCRIPT = runpy.run_path(str(ROOT / "experiments" / "write_results.py"))
overview, read_reports = SCRIPT["overview"], SCRIPT["read_reports"]


@pytest.fixture
def page(request_for, data, tmp_path):
    absent = (("amazon-cds", "its files are not here"),)
    request = request_for(datasets=(called(data),), absent=absent, seeds=(0, 1))
    computations = [
        *EXPERIMENTS["table-comparison"].computations(request),
        *EXPERIMENTS["table-ablation"].computations(request),
    ]
    results = {
        each.key: made_up(0.06 + 0.01 * each.seed) for each in computations if each.model in ("rankformer", "lightgcn")
    }
    for name in ("table-comparison", "table-runtime", "table-ablation"):
        head = head_of(name, name, f"rankformer reproduce {name}", request, ())
        write_report(tmp_path, name, head, EXPERIMENTS[name].show(request, results))
    (tmp_path / "other.json").write_text('{"format": "something else"}', encoding="utf-8")
    return overview(read_reports(tmp_path), "somewhere")


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_rows_hold_the_published_number_ours_and_a_command(page, data):
    comparison = section(page, "Comparison").splitlines()
    line = next(line for line in comparison if line.startswith("| Rankformer |"))
    assert [text.strip() for text in line.strip("|").split("|")][1:5] == ["2", "0.0652", "0.0650±.0071", "-0.3%"]
    row = next(line for line in comparison if line.startswith("| Rankformer, ali-display |"))
    assert row.endswith("--methods rankformer --seeds 2 |")
    assert "| rankformer reproduce table-comparison --dataset " in row


def test_rows_without_a_result_are_not_shown_and_datasets_that_were_not_run_are_named(page):
    comparison = section(page, "Comparison")
    assert "| MF" not in comparison
    assert "not run:" not in comparison
    assert "**amazon-cds was not run**: its files are not here" in comparison


def test_every_experiment_has_its_section_in_the_order_of_the_paper(page):
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["Comparison", "Ablation", "Runtime"]
    assert "ali-display: runtime (cpu; threads each: 1; trainings at a time: up to 1)" in section(page, "Runtime")
    assert "| w/o offset | 0.0539 | 0.0650±.0071 |" in section(page, "Ablation")
    assert "| LightGCN | 2 | 0.5 | 20 | 15.0 | 30.0 | 1,687 / 99 |" in section(page, "Runtime")
    assert "    rankformer reproduce table-ablation\n" in section(page, "Ablation")


def test_a_folder_without_reports_and_a_broken_one_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds no report"):
        read_reports(tmp_path)
    (tmp_path / "lemma.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"lemma\.json is not JSON"):
        read_reports(tmp_path)


def test_the_committed_page_is_what_the_committed_reports_say():
    reports = read_reports(ROOT / FOLDER)
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == overview(reports, FOLDER)
    for stem in re.findall(rf"{FOLDER}/([\w.-]+\.(?:md|png))", overview(reports, FOLDER)):
        assert (ROOT / FOLDER / stem).is_file()
