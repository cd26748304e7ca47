"""What an experiment shows, before it becomes Markdown, HTML or a picture."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """A table of strings; the first `texts` columns hold words, the others numbers, aligned on the right."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"{self.title}: a row of {len(row)} under {len(self.headings)} headings")


@dataclass(frozen=True)
class Line:
    """One line of a panel; `spread` is the half height of its error bars."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: above it.
        x_label: with the unit, if there is one.
        y_label: likewise.
        lines: in the order of the legend.
        logarithmic: both axes.
        whole_x: whether x counts something.
        marks: vertical lines to compare with, by place and words.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    logarithmic: bool = False
    whole_x: bool = False
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Picture:
    """Panels side by side, a caption, and a remark drawn on the picture itself."""

    caption: str
    panels: tuple[Panel, ...]
    remark: str = ""


@dataclass(frozen=True)
class Content:
    """All that an experiment has to say.

    Attributes:
        findings: sentences, most important first.
        tables: with the numbers.
        picture: where there is one.
        notes: how to read it, and what was left out.
        commands: what computes each row by itself, by row.
        data: the same numbers as values that JSON can hold.
    """

    findings: tuple[str, ...]
    tables: tuple[Table, ...]
    picture: Picture | None = None
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
