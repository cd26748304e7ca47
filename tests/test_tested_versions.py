"""docs/tested-versions.md says what the tests run against."""

import runpy
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "tested-versions"))
ROWS = TOOL["rows"]()


def test_the_page_is_what_the_tests_declare():
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["page"](), "run tools/tested-versions"
    assert {kind for kind, *_ in ROWS} >= {"source", "adapter", "metrics", "target"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_the_version_is_the_installed_one(row):
    """Those of a side environment are compared in it (tests/adapters/test_environment.py)."""
    _, _, package, expected, where = row
    if not (ROOT / where).with_name("requirements.txt").exists():
        from tests.conftest import needed

        needed({"faiss-cpu": "faiss", "ir_measures": "ir_measures"}.get(package, package))
        assert version(package) == expected


def test_a_declaration_without_a_pin_is_rejected(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "constraints.txt").write_text("known==1.0\n")
    (tmp_path / "tests" / "test_a.py").write_text('TESTED = {"Known": ("target", "known")}\n')
    assert TOOL["rows"](tmp_path) == [("target", "Known", "known", "1.0", "tests/test_a.py")]
    (tmp_path / "tests" / "test_b.py").write_text('TESTED = {"Other": ("target", "other")}\n')
    with pytest.raises(SystemExit, match=r"test_b\.py: Other needs"):
        TOOL["rows"](tmp_path)
