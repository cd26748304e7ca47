import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rankformer.errors import ConfigError
from rankformer.research.content import Content, Line, Panel, Picture, Table
from rankformer.research.pictures import LOOKS, draw
from rankformer.research.report import document_of, head_lines, head_of, write_report
from rankformer.research.results import code_version

HOSTILE = "<script>alert(1)</script>\"'|$\\frac{`*_"
PICTURE = Picture(
    HOSTILE,
    (Panel(HOSTILE, "x (s)", "y", (Line(HOSTILE, (0.0, 1.0), (0.1, 0.2), (0.01, 0.0)), Line("b", (0.0,), (0.3,)))),),
    HOSTILE,
)
TABLE = Table(HOSTILE, ("a", HOSTILE), ((HOSTILE, "1"),))
CONTENT = Content((HOSTILE,), (TABLE,), PICTURE, (HOSTILE,), ((HOSTILE, HOSTILE),), {"x": 1.5})


@pytest.fixture
def head(request_for, data):
    request = request_for(datasets=(replace(data, name=HOSTILE),), absent=(("yelp2018", HOSTILE),), epochs=3)
    results = [{"commit": code_version()}, {"commit": "older"}]
    return head_of("figure-alpha", HOSTILE, f"rankformer reproduce {HOSTILE}", request, results)


class Tags(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_shows_hostile_names_as_text_and_fetches_nothing(head, tmp_path):
    write_report(tmp_path, "figure", head, CONTENT)
    page = Tags()
    text = (tmp_path / "figure.html").read_text(encoding="utf-8")
    page.feed(text)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) >= 4
    sources = [value for name, value in page.attributes if name in ("src", "href", "srcset", "action", "data")]
    assert len(sources) == 1
    assert sources[0].startswith("data:image/svg+xml;base64,")
    assert not re.search(r"@import|url\(|<link|http://|https://", text)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "default-src 'none'" in dict(page.attributes)["content"] or "default-src 'none'" in text


def test_markdown_keeps_its_columns(head, tmp_path):
    write_report(tmp_path, "figure", head, CONTENT)
    text = (tmp_path / "figure.md").read_text(encoding="utf-8")
    assert "<script>" not in text
    row = next(line for line in text.splitlines() if line.startswith("|") and line.endswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert "](figure.svg)" in text
    assert "**A trial, not a result: trainings were cut off after 3 epochs.**" in text


def test_every_file_is_there_and_names_how_it_came_about(head, tmp_path):
    paths, problems = write_report(tmp_path / "new" / "folder", "figure", head, CONTENT)
    assert problems == []
    assert sorted(path.suffix for path in paths) == [".html", ".json", ".md", ".png", ".svg"]
    document = json.loads(paths[0].read_text())
    assert document == json.loads(json.dumps(document_of(head, CONTENT)))
    assert document["seeds"] == [0]
    assert document["datasets"][0]["name"] == HOSTILE
    assert document["absent"] == [["yelp2018", HOSTILE]]
    assert set(document["versions"]) == {"rankformer", "torch", "python"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", document["date"])
    assert document["data"] == {"x": 1.5}
    lines = dict(head_lines(head))
    assert lines["not run: yelp2018"] == HOSTILE
    assert "24 users x 18 items" in lines["data"]


def test_results_of_another_commit_are_named(head):
    lines = dict(head_lines(head))
    assert lines["commit"] == code_version()
    assert lines["results computed earlier"] == "1 of 2 with older"
    assert "results computed earlier" not in dict(head_lines({**head, "commits": {code_version(): 2}}))


def test_without_matplotlib_tables_still_work_and_the_figure_says_what_to_install(head, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    paths, problems = write_report(tmp_path, "figure", head, CONTENT)
    assert sorted(path.suffix for path in paths) == [".html", ".json", ".md"]
    assert "pip install 'rankformer[research]'" in problems[0]
    for ending in ("md", "html"):
        assert "matplotlib is not installed" in (tmp_path / f"figure.{ending}").read_text()


LINES = tuple(Line(f"line $_{number}", (0.0, 1.0), (0.1, 0.2), (0.01, 0.0)) for number in range(3))
DRAWN_PANEL = Panel("$\\frac{", "x (s)", "y", LINES, marks=((0.5, "here"),))
DRAWN = Picture("caption", (DRAWN_PANEL, Panel("b", "n", "y", LINES[:1], logarithmic=True)), "grid: $2$ steps")


def test_a_picture_is_png_and_svg_and_the_same_each_time():
    first, second = draw(DRAWN), draw(DRAWN)
    assert first[".png"].startswith(b"\x89PNG")
    assert b"<svg" in first[".svg"]
    assert first[".svg"] == second[".svg"]


def test_no_two_lines_of_a_panel_share_colour_or_marker_or_dashes():
    for name in ("color", "marker", "linestyle"):
        assert len({str(look[name]) for look in LOOKS}) == len(LOOKS)


def test_without_matplotlib_drawing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'rankformer\[research\]'"):
        draw(DRAWN)


def test_a_table_row_of_another_length_is_a_mistake():
    with pytest.raises(ValueError, match="2 headings"):
        Table("t", ("a", "b"), (("1",),))
