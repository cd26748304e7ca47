"""An exhibit's report as files: JSON, Markdown, pictures, and one HTML page that needs nothing else."""

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rankformer.errors import ConfigError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import write_bytes_atomic
from rankformer.research.content import Content
from rankformer.research.html import as_html
from rankformer.research.markdown import as_markdown
from rankformer.research.pictures import Drawing, draw
from rankformer.research.request import Request


@dataclass(frozen=True)
class Head:
    """What every report says of itself.

    Attributes:
        exhibit: its name on the command line.
        title: in words.
        command: that made it.
        date: when, in UTC.
        datasets: name, size and fingerprint of each dataset.
        absent: name and reason of each dataset that was not run.
        seeds: that were asked for.
        trial: why its numbers are no results, empty where they are.
        versions: of what its numbers depend on.
        machine: system, processor and cores.
    """

    exhibit: str
    title: str
    command: str
    date: str
    datasets: tuple[dict[str, Any], ...]
    absent: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    trial: str
    versions: dict[str, str]
    machine: dict[str, Any]

    def lines(self) -> list[tuple[str, str]]:
        """Return the head as pairs of what and value."""
        sizes = [
            f"{each['name']} ({each['users']:,} users x {each['items']:,} items, "
            f"{' / '.join(f'{count:,}' for count in each['pairs'])} pairs, {each['fingerprint'][:16]})"
            for each in self.datasets
        ]
        pairs = [("command", self.command), ("date", self.date), ("seeds", ", ".join(map(str, self.seeds)))]
        if sizes:
            pairs.append(("data", "; ".join(sizes)))
        pairs += [(f"not run: {name}", reason) for name, reason in self.absent]
        pairs.append(("versions", ", ".join(f"{name} {number}" for name, number in self.versions.items())))
        pairs.append(
            ("machine", f"{self.machine['system']}, {self.machine['processor']}, {self.machine['cores']} cores")
        )
        return pairs


def head_of(exhibit: str, title: str, command: str, request: Request) -> Head:
    """Return the head of a report made now, on this machine."""
    cards = [
        {
            "name": each.name,
            "users": each.users,
            "items": each.items,
            "pairs": each.pairs,
            "fingerprint": each.fingerprint,
        }
        for each in request.datasets
    ]
    bound = f"trainings were cut off after {request.epochs} epochs" if request.epochs is not None else ""
    machine = {"system": f"{sys.platform}", "processor": platform.machine(), "cores": os.cpu_count()}
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = (exhibit, title, command, date, tuple(cards), request.absent, request.seeds, bound)
    return Head(*head, installed_versions(), machine)


def document_of(head: Head, content: Content) -> dict[str, Any]:
    """Return the whole report as values that JSON can hold."""
    said = {"findings": list(content.findings), "notes": list(content.notes)}
    return {"format": "rankformer-exhibit", "version": 1, **asdict(head), **said, "data": content.data}


def write_report(folder: Path, name: str, head: Head, content: Content) -> tuple[list[Path], list[str]]:
    """Write the report's files as `folder`/`name`.*; return their paths, and notes on what could not be written."""
    drawing, problems = _drawn(content)
    texts = {
        ".json": json.dumps(document_of(head, content), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        ".md": as_markdown(head, content, f"{name}.svg" if drawing else None, problems),
        ".html": as_html(head, content, drawing.svg if drawing else None, problems),
    }
    files = {ending: text.encode() for ending, text in texts.items()}
    if drawing is not None:
        files |= {".png": drawing.png, ".svg": drawing.svg}
    paths = []
    for ending, data in files.items():
        path = folder / f"{name}{ending}"
        write_bytes_atomic(path, data)
        paths.append(path)
    return paths, problems


def _drawn(content: Content) -> tuple[Drawing | None, list[str]]:
    if content.picture is None:
        return None, []
    try:
        return draw(content.picture), []
    except ConfigError as error:
        return None, [str(error)]
