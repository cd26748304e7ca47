import sys

import pytest

from rankformer.errors import ConfigError
from rankformer.research.content import Line, Panel, Picture
from rankformer.research.pictures import LOOKS, draw

LINES = tuple(Line(f"line $_{number}", (0.0, 1.0), (0.1, 0.2), (0.01, 0.0)) for number in range(3))
PANEL = Panel("$\\frac{", "x (s)", "y", LINES, marks=(("x", 0.5, "here"),))
PICTURE = Picture("caption", (PANEL, Panel("b", "n", "y", LINES[:1], logarithmic=True)), "grid: $2$ steps")


def test_a_picture_is_png_and_svg_and_the_same_each_time():
    first, second = draw(PICTURE), draw(PICTURE)
    assert first.png.startswith(b"\x89PNG")
    assert b"<svg" in first.svg
    assert first.svg == second.svg


def test_no_two_lines_of_a_panel_share_colour_or_marker_or_dashes():
    for name in ("color", "marker", "linestyle"):
        assert len({str(look[name]) for look in LOOKS}) == len(LOOKS)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'rankformer\[plots\]'"):
        draw(PICTURE)
