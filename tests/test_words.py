"""One term per concept: words that the project no longer uses do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What was said, and what is said now.
RETIRED = {
    r"\bknobs?\b": "hyperparameters, settings",
    r"\bunsaid\b": "default",
    r"\bmend(ed|s)?\b": "fixed",
    r"\bpassed over\b": "ignored, skipped",
    r"\bmade-up\b": "new user",
    r"\bonly a history\b": "new user",
    r"\bturned away\b": "rejected, rate-limited",
    r"\bexhibits?\b": "experiment",
    r"\btruth values?\b": "booleans",
    r"\bwhole numbers?\b": "integers",
    r"\bis no dataset\b": "is not a known dataset",
    r"\bfalls along\b": "cosine decay",
    r"\b(goes|go) on\b": "continues",
    r"\bpenal(ty|ties|ise[sd]?)\b": "L2 regularization",
    r"\b(Wish|Shelf|WireIds|Gate|Observing|Workplace|Judge)\b": "RankingOptions, SearchIndex, IdCodec, ...",
    r"\bcrowd\b": "global contribution",
    r"\bseal(ed|s)?\b": "checksum",
    r"\bbent\b": "activation",
    r"\bquiet_": "noise-free",
}
# Names of files and interfaces that stay as they were published.
KEPT = {
    "src/rankformer/runs/checksums.py": r'"seal"',  # the key in files of version 0.1
    "src/rankformer/serving/": r'"?\bcrowd\b"?',  # a key of the service's JSON
    "docs/service.md": r"\bcrowd\b",
    "src/rankformer/runs/legacy.py": r"penalty",  # a setting of version 0.1
    "src/rankformer/data/demo.py": r"\bGate\b",  # in a book title
    "CHANGELOG.md": r".*",
}
FILES = sorted(
    path
    for pattern in ("src/**/*.py", "src/**/*.js", "src/**/*.html", "docs/**/*.md", "examples/*.py", "*.md")
    for path in ROOT.glob(pattern)
    if ".egg-info" not in str(path)
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_retired_words_do_not_come_back(path):
    name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for place, kept in KEPT.items():
        if name.startswith(place):
            text = re.sub(kept, "", text)
    for word, instead in RETIRED.items():
        found = re.search(word, text)
        line = text[: found.start()].count("\n") + 1 if found else 0
        assert not found, f"{name}:{line} says {found.group()!r}; say {instead}"
