"""A report as one HTML page: styles and picture inside, no script, nothing fetched from anywhere."""

import base64
from collections.abc import Sequence
from html import escape

from rankformer.research.content import Content, Table
from rankformer.research.markdown import Described

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


def as_html(head: Described, content: Content, svg: bytes | None, problems: Sequence[str]) -> str:
    """Return the page; whatever the data and the files are called is shown as text."""
    body = [f"<h1>{escape(head.title)}</h1>"]
    if head.trial:
        body.append(f'<p class="trial">A trial, not a result: {escape(head.trial)}.</p>')
    body.append(_list(content.findings))
    if svg is not None and content.picture is not None:
        caption = escape(content.picture.caption)
        source = base64.b64encode(svg).decode()
        body.append(
            f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{source}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    body += [f"<p><em>{escape(problem)}</em></p>" for problem in problems]
    body += [f"<h2>{escape(table.title)}</h2>\n{_table(table)}" for table in content.tables]
    if content.notes:
        body.append("<h2>How to read it</h2>" + _list(content.notes))
    about = "".join(
        f'<tr><th class="word" scope="row">{escape(what)}</th><td class="word">{escape(value)}</td></tr>'
        for what, value in head.lines()
    )
    body.append(f'<h2>How it came about</h2>\n<div class="scroll"><table><tbody>{about}</tbody></table></div>')
    title = escape(head.title)
    # The policy forbids what the page does without anyway, should a text ever get past the escaping.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n" + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>" if sentences else ""


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col"{_kind(table, at)}>{escape(each)}</th>' for at, each in enumerate(table.headings))
    rows = "".join(
        f"<tr>{''.join(f'<td{_kind(table, at)}>{escape(each)}</td>' for at, each in enumerate(row))}</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _kind(table: Table, column: int) -> str:
    return ' class="word"' if column < table.texts else ""
