"""What an experiment shows, before it becomes Markdown, HTML or a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Table:
    """A table of strings; the first `texts` columns hold words, the others numbers, aligned on the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"{self.title}: a row of {len(row)} under {len(self.headings)} headings")


class Line(NamedTuple):
    """One line of a panel; `spread` is the half height of its error bars."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None


class Panel(NamedTuple):
    """One pair of axes, its lines in the order of the legend."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    logarithmic: bool = False  # both axes
    whole_x: bool = False  # x counts something
    marks: tuple[tuple[float, str], ...] = ()  # vertical lines to compare with, by position and label


class Picture(NamedTuple):
    """Panels side by side, a caption, and a remark drawn on the picture itself."""

    caption: str
    panels: Sequence[Panel]
    remark: str = ""


@dataclass(frozen=True)
class Content:
    """All that an experiment has to say: sentences, most important first, and the numbers behind them."""

    findings: Sequence[str]
    tables: Sequence[Table]
    picture: Picture | None = None
    notes: Sequence[str] = ()  # how to read it, and what was left out
    commands: Sequence[tuple[str, str]] = ()  # what computes each row by itself, by row
    data: dict[str, Any] = field(default_factory=dict)  # the same numbers as values that JSON can hold
