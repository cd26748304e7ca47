"""An experiment's report as files: JSON, Markdown, pictures, and one HTML page that needs nothing else.

Markdown and HTML are two forms of the same blocks. The page (`report.html`) has its styles and picture inside, no
script, and fetches nothing; its policy forbids what it does without anyway, should a text get past the escaping.
"""

import base64
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from rankformer.errors import ConfigError
from rankformer.evaluation.protocol import installed_versions
from rankformer.files import write_bytes_atomic
from rankformer.research.content import Content, Table
from rankformer.research.pictures import draw
from rankformer.research.published import FILES
from rankformer.research.request import Request
from rankformer.research.results import Result, code_version

FORMAT = "rankformer-experiment"
Head = dict[str, Any]
Blocks = list[tuple[str, Any]]  # what kind of block, one of those in `FORMS`, and its text, sentences or table


def head_of(experiment: str, title: str, command: str, request: Request, results: Iterable[Result]) -> Head:
    """Return what a report made now says of itself: how, when, with which code and on what it was made.

    `commits` counts the results by the code that computed them; `absent` has name and reason of each dataset that was
    not run; `trial` says why the numbers are not results, and is empty where they are.
    """
    sizes = ("name", "users", "items", "interactions", "fingerprint")
    return {
        "experiment": experiment,
        "title": title,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": code_version(),
        "commits": dict(Counter(result.get("commit", "unknown code") for result in results)),
        "datasets": [{name: getattr(each, name) for name in sizes} for each in request.datasets],
        "absent": request.absent,
        "seeds": request.seeds,
        "trial": f"trainings were cut off after {request.epochs} epochs" if request.epochs is not None else "",
        "versions": installed_versions(),
        "machine": {"system": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
    }


def other_commits(head: Head) -> str:
    """Return how many results are from other code than the report, in words; empty if none."""
    others = {name: count for name, count in head["commits"].items() if name != head["commit"]}
    return ", ".join(f"{count} of {sum(head['commits'].values())} with {name}" for name, count in others.items())


def head_lines(head: Head) -> tuple[tuple[str, str], ...]:
    """Return the head as (name, value) tuples."""
    sizes = [
        f"{each['name']} ({each['users']:,} users x {each['items']:,} items, "
        f"{' / '.join(f'{count:,}' for count in each['interactions'])} interactions, {each['fingerprint'][:16]})"
        for each in head["datasets"]
    ]
    facts = (
        ("command", head["command"]),
        ("date", head["date"]),
        ("commit", head["commit"]),
        ("results computed earlier", other_commits(head)),
        ("seeds", ", ".join(map(str, head["seeds"]))),
        ("data", "; ".join(sizes)),
        *((f"not run: {name}", reason) for name, reason in head["absent"]),
        ("versions", ", ".join(f"{name} {number}" for name, number in head["versions"].items())),
        ("machine", "{system}, {processor}, {cores} cores".format(**head["machine"])),
    )
    return tuple((what, value) for what, value in facts if value)


def document_of(head: Head, content: Content) -> dict[str, Any]:
    """Return the whole report as values that JSON can hold."""
    said = {"findings": content.findings, "notes": content.notes, "commands": content.commands}
    tables = [asdict(table) for table in content.tables]
    document = {"format": FORMAT, "version": 2, **head, **said, "tables": tables, "data": content.data}
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


def write_report(folder: Path, name: str, head: Head, content: Content) -> tuple[list[Path], list[str]]:
    """Write the report's files as `folder`/`name`.*; return their paths, and notes on what could not be written."""
    pictures: dict[str, bytes] = {}
    problems = []
    try:
        pictures = draw(content.picture) if content.picture else {}
    except ConfigError as error:
        problems.append(str(error))
    source = base64.b64encode(pictures.get(".svg", b"")).decode()
    sources = {".md": f"{name}.svg", ".html": f"data:image/svg+xml;base64,{source}"}
    written = {}
    for ending, forms in FORMS.items():
        blocks = _blocks(head, content, sources[ending] if pictures else None, problems)
        written[ending] = [forms[kind](what) for kind, what in blocks if what]
    page = Template(FILES.joinpath("report.html").read_text(encoding="utf-8"))
    documents = {
        ".json": json.dumps(document_of(head, content), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        ".md": "\n\n".join(written[".md"]) + "\n",
        ".html": page.substitute(title=escape(head["title"]), body="\n".join(written[".html"])),
    }
    files = {ending: text.encode() for ending, text in documents.items()} | pictures
    for ending, data in files.items():
        write_bytes_atomic(folder / f"{name}{ending}", data)
    return [folder / f"{name}{ending}" for ending in files], problems


def _blocks(head: Head, content: Content, picture: str | None, problems: Sequence[str]) -> Blocks:
    """Return the report from top to bottom; what is empty is left out when it is written."""
    blocks: Blocks = [("title", head["title"]), ("trial", head["trial"]), ("list", content.findings)]
    if picture is not None and content.picture is not None:
        blocks.append(("picture", (content.picture.caption, picture)))
    blocks += [("problem", problem) for problem in problems]
    blocks += [("table", table) for table in tables_of(content.tables, content.commands)]
    blocks.append(("notes", content.notes))
    blocks.append(("table", Table("How it was made", ("", ""), head_lines(head), texts=2)))
    return blocks


def tables_of(tables: Sequence[Table], commands: Sequence[tuple[str, str]]) -> list[Table]:
    """Return the tables of numbers, and that of the commands if there are any."""
    last = [Table("Each row by itself", ("row", "command"), tuple(commands), texts=2)] if commands else []
    return [*tables, *last]


def as_text(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    for letter in "\\`*_[]|":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())


def bullets(sentences: Iterable[str]) -> str:
    """Return sentences as a Markdown list."""
    return "\n".join(f"- {as_text(sentence)}" for sentence in sentences)


def table_lines(table: Table) -> str:
    """Return a table as lines of Markdown."""
    sides = [":---" if column < table.texts else "---:" for column in range(len(table.headings))]
    rows = [table.headings, sides, *table.rows]
    return "\n".join("| " + " | ".join(as_text(text) for text in row) + " |" for row in rows)


def _html_list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>"


def _html_table(table: Table) -> str:
    def line(strings: Sequence[str], tag: str) -> str:
        kinds = [' class="word"' if at < table.texts else "" for at in range(len(strings))]
        cells = (f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(strings, kinds, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    head = f"<thead>{line(table.headings, 'th')}</thead>" if any(table.headings) else ""
    rows = "".join(line(row, "td") for row in table.rows)
    title = f"<h2>{escape(table.title)}</h2>"
    return f'{title}\n<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


# What each kind of block becomes.
_MARKDOWN: dict[str, Callable[[Any], str]] = {
    "title": lambda text: f"# {as_text(text)}",
    "trial": lambda text: f"**A trial, not a result: {as_text(text)}.**",
    "list": bullets,
    "picture": lambda it: f"![{as_text(it[0])}]({it[1]})\n\n*{as_text(it[0])}*",
    "problem": lambda text: f"*{as_text(text)}*",
    "table": lambda table: f"## {as_text(table.title)}\n\n{table_lines(table)}",
    "notes": lambda notes: f"## How to read it\n\n{bullets(notes)}",
}
_HTML: dict[str, Callable[[Any], str]] = {
    "title": lambda text: f"<h1>{escape(text)}</h1>",
    "trial": lambda text: f'<p class="trial">A trial, not a result: {escape(text)}.</p>',
    "list": _html_list,
    "picture": lambda it: '<figure><img alt="{0}" src="{1}"><figcaption>{0}</figcaption></figure>'.format(
        escape(it[0]), it[1]
    ),
    "problem": lambda text: f"<p><em>{escape(text)}</em></p>",
    "table": _html_table,
    "notes": lambda notes: "<h2>How to read it</h2>" + _html_list(notes),
}
FORMS = {".md": _MARKDOWN, ".html": _HTML}
