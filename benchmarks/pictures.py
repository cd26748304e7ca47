"""The suite's pictures: readable in print and without telling colours apart."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.curves import METRIC
from benchmarks.measure import Result

# Colours of Okabe and Ito, told apart under every common colour blindness; line and marker differ as well.
LOOKS: dict[str, dict[str, Any]] = {
    "default": {"color": "#D55E00", "linestyle": "-", "marker": "o"},
    "paper": {"color": "#0072B2", "linestyle": "--", "marker": "s"},
    "als": {"color": "#000000", "linestyle": ":", "marker": "^"},
}

LOWEST_SHARE = 0.6  # of the best value, where the panels begin


def draw_quality(rows: Sequence[Result], methods: Mapping[str, str], path: Path) -> None:
    """Write `path`.png and .svg: validation quality over seconds, one panel per dataset."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "rankformer"}):
        figure, axes = plt.subplots(1, len(rows), figsize=(4.6 * len(rows), 3.9), squeeze=False)
        for axis, row in zip(axes[0], rows, strict=True):
            draw_panel(axis, row, methods)
        axes[0][0].set_ylabel("best validation NDCG@20 so far")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=len(methods), frameon=False)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path.with_suffix(".png"), dpi=200)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)


def draw_panel(axis: Any, row: Result, methods: Mapping[str, str]) -> None:
    for method, label in methods.items():
        for number, course in enumerate(row[method]):
            draw_course(axis, course, LOOKS[method], label if number == 0 else None)
    axis.set_xscale("log")
    top = max(
        point[METRIC] for courses in (row[method] for method in methods) for course in courses for point in course
    )
    axis.set_ylim(LOWEST_SHARE * top, 1.02 * top)
    right = axis.get_xlim()[1]
    for course, look in ((course, LOOKS[method]) for method in methods for course in row[method]):
        # What was found stays found: the last value goes on to the edge.
        best = max(point[METRIC] for point in course)
        axis.plot(
            [course[-1]["seconds"], right], [best, best], color=look["color"], linestyle=look["linestyle"], alpha=0.4
        )
    axis.set_xlim(right=right)
    axis.axvline(10, color="#999999", linewidth=0.8)
    axis.annotate(
        "10 s", (10, LOWEST_SHARE * top), xytext=(-24, 4), textcoords="offset points", color="#666666", fontsize=8
    )
    axis.set_title(row["dataset"])
    axis.set_xlabel("wall-clock time (seconds, log scale)")
    axis.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_formatter("{x:g}")


def draw_course(axis: Any, course: Sequence[Mapping[str, float]], look: dict[str, Any], label: str | None) -> None:
    """Draw the best value so far as a staircase with a few markers, and its last rise larger."""
    x, y = [point["seconds"] for point in course], list(accumulate((point[METRIC] for point in course), max))
    every = max(1, len(course) // 8)
    axis.plot(x, y, **look, label=label, linewidth=1.5, markersize=4, markevery=every, drawstyle="steps-post")
    best = y.index(y[-1])
    axis.plot(x[best], y[best], marker=look["marker"], color=look["color"], markersize=9, markerfacecolor="white")
