"""The pages docs/tracking.md and docs/export.md: their blocks, and a way to run what is in them."""

import re
import subprocess
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
TRACKING, EXPORT = ((DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("tracking", "export"))


def blocks(page):
    """Return (language, file name or empty, content) of each block, in order."""
    return re.findall(r"```(\w+)(?: file=(\S+))?\n(.*?)```", page, re.DOTALL)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr[-2000:])
    return done.stdout
