"""Results as HTML, which notebooks show in place of text."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def html_table(headings: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, *notes: str) -> str:
    """Return a table with a caption and lines below it; every value is escaped, floats have four digits."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    below = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)
    title = f"<caption>{escape(caption)}</caption>"
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
    return f"<td>{escape(text)}</td>"
