"""Figures as PNG and SVG: readable in print and without colours."""

import io
from typing import Any

from rankformer.errors import ConfigError
from rankformer.research.content import Panel, Picture

# Colours of Okabe and Ito, distinct under every common colour blindness; line and marker differ as well.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
    {"color": "#000000", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#E69F00", "linestyle": (0, (1, 1)), "marker": "P"},
    {"color": "#56B4E9", "linestyle": (0, (8, 2)), "marker": "X"},
)
INSTALL = "no picture was drawn: matplotlib is not installed; get it with pip install 'rankformer[research]'"


def draw(picture: Picture) -> dict[str, bytes]:
    """Return the picture by file ending: PNG (200 dots per inch) and SVG (letters as outlines, the same everywhere).

    Raises:
        ConfigError: matplotlib is not installed; the message says what to do.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(INSTALL) from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # No date and a fixed salt: the same numbers give the same bytes.
    with plt.rc_context({"font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "rankformer"}):
        # Wider where the legend's words need it, which are long where there are few panels.
        width = max(5.2, 4.4 * len(picture.panels))
        figure, axes = plt.subplots(1, len(picture.panels), figsize=(width, 4.4), squeeze=False, layout="constrained")
        try:
            for axis, panel in zip(axes[0], picture.panels, strict=True):
                _draw_panel(axis, panel)
            _draw_legends(figure, axes[0], picture)
            if picture.remark:
                figure.suptitle(_plain(picture.remark), fontsize=8, color="#444444")
            return {".png": _bytes(figure, "png", dpi=200), ".svg": _bytes(figure, "svg", metadata={"Date": None})}
        finally:
            plt.close(figure)


def _bytes(figure: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    # The legends stand outside of the axes.
    figure.savefig(stream, format=kind, bbox_inches="tight", pad_inches=0.1, **options)
    return stream.getvalue()


def _draw_panel(axis: Any, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        style = {**LOOKS[number % len(LOOKS)], "linewidth": 1.5, "markersize": 4.5, "label": _plain(line.label)}
        if line.spread is None:
            axis.plot(line.x, line.y, **style)
        else:
            axis.errorbar(line.x, line.y, yerr=line.spread, capsize=2, elinewidth=0.8, **style)
    starts_low = not panel.logarithmic and _starts_low(panel)
    if panel.logarithmic:
        axis.set_xscale("log")
        axis.set_yscale("log")
    elif starts_low:
        axis.set_ylim(bottom=0)
    else:
        axis.margins(y=0.12)
    if panel.whole_x:
        axis.xaxis.get_major_locator().set_params(integer=True)
    for position, label in panel.marks:
        style = {"color": "#777777", "linewidth": 0.8, "linestyle": (0, (3, 3)), "zorder": 0}
        axis.axvline(position, label=_plain(label), **style)
    axis.set_title(_plain(panel.title))
    axis.set_xlabel(_plain(panel.x_label))
    cut = "" if panel.logarithmic or starts_low else " (axis does not start at 0)"
    axis.set_ylabel(_plain(panel.y_label + cut))
    axis.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _starts_low(panel: Panel) -> bool:
    """Whether 0 belongs on the vertical axis: where the lines reach down to the lower half anyway."""
    values = [y for line in panel.lines for y in line.y]
    return min(values) < 0.5 * max(values)


def _draw_legends(figure: Any, axes: Any, picture: Picture) -> None:
    """Draw one legend under all panels where their words agree, otherwise one under each."""
    words = [tuple(axis.get_legend_handles_labels()[1]) for axis in axes]
    if len(set(words)) == 1 and len(words[0]) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        columns = max(1, min(len(labels), int(14 * len(picture.panels) / max(map(len, labels)) * 3)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return
    for axis, labels in zip(axes, words, strict=True):
        if len(labels) > 1:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=8)


def _plain(text: str) -> str:
    """Return a text that matplotlib shows as it is: it takes what stands between dollar signs for mathematics."""
    return text.replace("$", r"\$").replace("\n", " ")
