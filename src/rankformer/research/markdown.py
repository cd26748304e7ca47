"""A report as Markdown."""

from collections.abc import Sequence
from typing import Protocol

from rankformer.research.content import Content, Table


class Described(Protocol):
    """What the head of a report has to offer here."""

    @property
    def title(self) -> str:
        """The report's title."""

    @property
    def trial(self) -> str:
        """Why it is a trial, empty where it is none."""

    def lines(self) -> list[tuple[str, str]]:
        """Pairs of what and value."""


def as_markdown(head: Described, content: Content, picture: str | None, problems: Sequence[str]) -> str:
    """Return the report; `picture` is the file name of its picture, beside it."""
    blocks = [f"# {as_text(head.title)}"]
    if head.trial:
        blocks.append(f"**A trial, not a result: {as_text(head.trial)}.**")
    if content.findings:
        blocks.append("\n".join(f"- {as_text(finding)}" for finding in content.findings))
    if picture is not None and content.picture is not None:
        blocks.append(f"![{as_text(content.picture.caption)}]({picture})\n\n*{as_text(content.picture.caption)}*")
    blocks += [f"*{as_text(problem)}*" for problem in problems]
    blocks += [f"## {as_text(table.title)}\n\n{table_lines(table)}" for table in content.tables]
    if content.notes:
        blocks.append("## How to read it\n\n" + "\n".join(f"- {as_text(note)}" for note in content.notes))
    about = Table("", ("", ""), tuple(head.lines()), texts=2)
    blocks.append(f"## How it came about\n\n{table_lines(about)}")
    return "\n\n".join(blocks) + "\n"


def table_lines(table: Table) -> str:
    """Return a table as lines of Markdown."""
    sides = [":---" if column < table.texts else "---:" for column in range(len(table.headings))]
    rows = [table.headings, sides, *table.rows]
    return "\n".join("| " + " | ".join(as_text(cell) for cell in row) + " |" for row in rows)


def as_text(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    for letter in "\\`*_[]|":
        text = text.replace(letter, f"\\{letter}")
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())
