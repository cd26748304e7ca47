"""An experiment's report as files: JSON, Markdown, pictures, and one HTML page that needs nothing else."""

import base64
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from rankformer.errors import ConfigError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import write_bytes_atomic
from rankformer.research.content import Content, Table
from rankformer.research.pictures import Drawing, draw
from rankformer.research.request import Request
from rankformer.research.results import Result, code_version

FORMAT = "rankformer-experiment"
STYLE = """
:root { color-scheme: light dark; --line: #bbb; --soft: #666; --band: rgba(127, 127, 127, .1); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
.scroll { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { border-bottom-width: 2px; } .word { text-align: left; } tbody tr:nth-child(even) { background: var(--band); }
td { white-space: nowrap; } td.word { white-space: normal; max-width: 34rem; overflow-wrap: break-word; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; } figcaption { color: var(--soft); }
.trial { border: 2px solid #D55E00; padding: .5rem 1rem; font-weight: 600; }
@media (prefers-color-scheme: dark) { :root { --soft: #aaa; --line: #555; } }
@media print { body { max-width: none; margin: 0; font-size: 10pt; } table { font-size: 8pt; }
  .scroll { overflow: visible; } figure, tr { break-inside: avoid; } h2 { break-after: avoid; } }
"""


@dataclass(frozen=True)
class Head:
    """What every report says of itself: how, when, with which code and on what it was made.

    `commits` counts the results by the code that computed them; `absent` has name and reason of each dataset that was
    not run; `trial` says why the numbers are not results, and is empty where they are.
    """

    experiment: str
    title: str
    command: str
    date: str
    commit: str
    commits: dict[str, int]
    datasets: tuple[dict[str, Any], ...]
    absent: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    trial: str
    versions: dict[str, str]
    machine: dict[str, Any]

    @property
    def other_commits(self) -> str:
        """How many results are from other code than the report, in words; empty if none."""
        others = {name: count for name, count in self.commits.items() if name != self.commit}
        return ", ".join(f"{count} of {sum(self.commits.values())} with {name}" for name, count in others.items())

    def lines(self) -> list[tuple[str, str]]:
        """Return the head as pairs of what and value."""
        sizes = [
            f"{each['name']} ({each['users']:,} users x {each['items']:,} items, "
            f"{' / '.join(f'{count:,}' for count in each['interactions'])} interactions, {each['fingerprint'][:16]})"
            for each in self.datasets
        ]
        machine = f"{self.machine['system']}, {self.machine['processor']}, {self.machine['cores']} cores"
        pairs = [
            ("command", self.command),
            ("date", self.date),
            ("commit", self.commit),
            ("results computed earlier", self.other_commits),
            ("seeds", ", ".join(map(str, self.seeds))),
            ("data", "; ".join(sizes)),
            *((f"not run: {name}", reason) for name, reason in self.absent),
            ("versions", ", ".join(f"{name} {number}" for name, number in self.versions.items())),
            ("machine", machine),
        ]
        return [(what, value) for what, value in pairs if value]


def head_of(experiment: str, title: str, command: str, request: Request, results: Iterable[Result]) -> Head:
    """Return the head of a report made now, on this machine."""
    sizes = ("name", "users", "items", "interactions", "fingerprint")
    return Head(
        experiment=experiment,
        title=title,
        command=command,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=code_version(),
        commits=dict(Counter(result.get("commit", "unknown code") for result in results)),
        datasets=tuple({name: getattr(each, name) for name in sizes} for each in request.datasets),
        absent=request.absent,
        seeds=request.seeds,
        trial=f"trainings were cut off after {request.epochs} epochs" if request.epochs is not None else "",
        versions=installed_versions(),
        machine={"system": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
    )


def document_of(head: Head, content: Content) -> dict[str, Any]:
    """Return the whole report as values that JSON can hold."""
    said = {"findings": content.findings, "notes": content.notes, "commands": content.commands}
    tables = [asdict(table) for table in content.tables]
    document = {"format": FORMAT, "version": 2, **asdict(head), **said, "tables": tables, "data": content.data}
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


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
    for ending, data in files.items():
        write_bytes_atomic(folder / f"{name}{ending}", data)
    return [folder / f"{name}{ending}" for ending in files], problems


def _drawn(content: Content) -> tuple[Drawing | None, list[str]]:
    try:
        return (draw(content.picture) if content.picture else None), []
    except ConfigError as error:
        return None, [str(error)]


def as_markdown(head: Head, content: Content, picture: str | None, problems: Sequence[str]) -> str:
    """Return the report as Markdown; `picture` is the file name of its picture, beside it."""
    blocks = [f"# {as_text(head.title)}"]
    if head.trial:
        blocks.append(f"**A trial, not a result: {as_text(head.trial)}.**")
    blocks.append(bullets(content.findings))
    if picture is not None and content.picture is not None:
        blocks.append(f"![{as_text(content.picture.caption)}]({picture})\n\n*{as_text(content.picture.caption)}*")
    blocks += [f"*{as_text(problem)}*" for problem in problems]
    blocks += [f"## {as_text(table.title)}\n\n{table_lines(table)}" for table in _all_tables(head, content)[:-1]]
    if content.notes:
        blocks.append("## How to read it\n\n" + bullets(content.notes))
    about = _all_tables(head, content)[-1]
    blocks.append(f"## {about.title}\n\n{table_lines(about)}")
    return "\n\n".join(block for block in blocks if block) + "\n"


def _all_tables(head: Head, content: Content) -> list[Table]:
    """Return the tables of numbers, that of the commands, and last what the report says of itself."""
    commands = [Table("Each row by itself", ("row", "command"), content.commands, texts=2)] if content.commands else []
    return [*content.tables, *commands, Table("How it was made", ("", ""), tuple(head.lines()), texts=2)]


def bullets(sentences: Iterable[str]) -> str:
    """Return sentences as a Markdown list."""
    return "\n".join(f"- {as_text(sentence)}" for sentence in sentences)


def table_lines(table: Table) -> str:
    """Return a table as lines of Markdown."""
    sides = [":---" if column < table.texts else "---:" for column in range(len(table.headings))]
    rows = [table.headings, sides, *table.rows]
    return "\n".join("| " + " | ".join(as_text(text) for text in row) + " |" for row in rows)


def as_text(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    for letter in "\\`*_[]|":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())


def as_html(head: Head, content: Content, svg: bytes | None, problems: Sequence[str]) -> str:
    """Return the report as one page: styles and picture inside, no script, nothing fetched; names are shown as text."""
    body = [f"<h1>{escape(head.title)}</h1>"]
    if head.trial:
        body.append(f'<p class="trial">A trial, not a result: {escape(head.trial)}.</p>')
    body.append(_html_list(content.findings))
    if svg is not None and content.picture is not None:
        caption = escape(content.picture.caption)
        source = base64.b64encode(svg).decode()
        body.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{source}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    body += [f"<p><em>{escape(problem)}</em></p>" for problem in problems]
    *tables, about = [f"<h2>{escape(table.title)}</h2>\n{_html_table(table)}" for table in _all_tables(head, content)]
    body += tables
    if content.notes:
        body.append("<h2>How to read it</h2>" + _html_list(content.notes))
    body.append(about)
    # The policy forbids what the page does without anyway, should a text ever get past the escaping.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(head.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _html_list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>" if sentences else ""


def _html_table(table: Table) -> str:
    def line(texts: Sequence[str], tag: str) -> str:
        kinds = [' class="word"' if at < table.texts else "" for at in range(len(texts))]
        cells = (f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(texts, kinds, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{line(table.headings, 'th')}</thead>" if any(table.headings) else ""
    rows = "".join(line(row, "td") for row in table.rows)
    return f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'
