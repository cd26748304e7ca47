"""docs/tested-versions.md says what the tests run against."""

import runpy
from importlib.metadata import version
from pathlib import Path

import pytest

from rankformer.data.readers import READERS
from rankformer.data.readers.layouts import LAYOUTS
from rankformer.export import TARGETS
from rankformer.tracking import TRACKERS

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "tested-versions"))
ROWS = TOOL["rows"]()


def test_the_page_is_what_the_tests_declare():
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["page"](), "run tools/tested-versions"


def test_whatever_the_package_names_has_a_row():
    named = {kind: {name for row in ROWS if row[0] == kind for name in row[2].split()} for kind in TOOL["KINDS"]}
    adapters = {path.stem for path in (ROOT / "src" / "rankformer" / "adapters").glob("*.py")}
    assert named["adapter"] == adapters - {"__init__", "common"}
    assert named["tracker"] == set(TRACKERS)
    assert named["target"] == {*TARGETS, "postgresql"}  # which `recommend --to` writes
    databases = {"duckdb", "sqlite", "postgresql"}
    assert named["source"] == {*READERS, *LAYOUTS, *databases, "pandas", "polars", "pyarrow", "scipy"}
    assert named["metrics"] == {"ir_measures", "ranx"}
    assert named["tool"] == {"optuna", "mlflow", "huggingface_hub"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_the_version_is_the_installed_one(row):
    """Those of a side environment are compared in it (test_environment.py of its folder)."""
    *_, package, expected, where = row
    if not (ROOT / where).with_name("requirements.txt").exists():
        from tests.conftest import needed

        needed({"faiss-cpu": "faiss"}.get(package, package))
        assert version(package).partition("+")[0] == expected  # without the local part, such as +cpu


def test_a_declaration_without_a_pin_is_rejected(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "constraints.txt").write_text("known==1.0\n")
    (tmp_path / "tests" / "test_a.py").write_text('TESTED = {"Known": ("target", "known")}\n')
    assert TOOL["rows"](tmp_path) == [("target", "Known", "known", "known", "1.0", "tests/test_a.py")]
    (tmp_path / "tests" / "test_b.py").write_text('TESTED = {"Other": ("target", "other")}\n')
    with pytest.raises(SystemExit, match=r"test_b\.py: Other needs"):
        TOOL["rows"](tmp_path)
