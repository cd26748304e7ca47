"""The snippets of docs/adapters.md run as they stand, each after the one that makes the log."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
LOG, *SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LIBRARIES = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)[: len(SNIPPETS)]
PRINTED = {
    "RecTools": r"ease .*\n.*popular",
    "LensKit": r"NDCG@10 +0\.[2-9]",
    "Cornac": r"EASE +\| +0\.[2-9]",
    "implicit": r"book-\d+",
    "scikit-learn": r"'regularization': 10+",
    "RecBole": r"'ndcg@10': 0\.[2-9]",
}


def test_every_library_has_a_snippet():
    assert list(PRINTED) == LIBRARIES


@pytest.mark.parametrize(("library", "snippet"), zip(LIBRARIES, SNIPPETS, strict=True), ids=LIBRARIES)
def test_the_snippet_runs(library, snippet, capsys):
    exec(compile(LOG + snippet, f"docs/adapters.md: {library}", "exec"), {"__name__": "snippet"})  # noqa: S102
    assert re.search(PRINTED[library], capsys.readouterr().out)
