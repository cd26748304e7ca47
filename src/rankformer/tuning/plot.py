"""A picture of a search: how the best value grew, and what each setting did to it."""

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from optuna.distributions import CategoricalDistribution, IntDistribution

from rankformer.files import atomic_path
from rankformer.tuning.report import PICTURE
from rankformer.tuning.space import Dimension
from rankformer.tuning.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, distinct for colour-blind readers; the shapes are distinct in grey print too.
BEST_COLOUR = "#D55E00"
LOOKS: dict[str, dict[str, Any]] = {
    "complete": {"color": "#0072B2", "marker": "o", "s": 28},
    "short": {"color": "#56B4E9", "marker": ".", "s": 28},
    "pruned": {"color": "#E69F00", "marker": "x", "s": 28},
    "defaults": {"facecolor": "none", "edgecolor": "black", "marker": "D", "s": 70},
    "best": {"color": BEST_COLOUR, "marker": "*", "s": 150, "zorder": 3},
}


def draw(study: Study) -> bool:
    """Write the picture of a search as PNG, in one step; return whether matplotlib is there to do it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    aim, columns = study.objective, {1: 1, 2: 2, 4: 2}.get(len(study.space), 3)
    rows = 1 + math.ceil(len(study.space) / columns)
    # A figure of its own, without pyplot: nothing of a notebook's state is touched.
    figure = Figure(figsize=(max(8.0, 3.6 * columns), 3.0 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, columns)
    _draw_history(figure.add_subplot(grid[0, :]), study)
    for position, (name, dimension) in enumerate(study.space.items()):
        axes = figure.add_subplot(grid[1 + position // columns, position % columns])
        values = [trial.settings[name] for trial in study.trials]
        axes.set_xlabel(f"{name} (log scale)" if getattr(dimension, "log", False) else name)
        _draw_points(axes, study, _scale(axes, dimension, values))
    for axes in figure.axes:
        axes.set_ylabel(f"validation {aim.metric}")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{aim.method.name} on {aim.data.name}, {len(study.trials)} trials, seed {aim.seed}")
    with atomic_path(aim.folder / PICTURE) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    return True


def _draw_history(axes: "Axes", study: Study) -> None:
    _draw_points(axes, study, [trial.number for trial in study.trials])
    complete = {trial.number: trial.value for trial in study.trials if trial.state == "complete"}
    best = list(accumulate((value for value in complete.values() if value is not None), max))
    if best:
        line: dict[str, Any] = {"color": BEST_COLOUR, "drawstyle": "steps-post", "linewidth": 1.5, "zorder": 0}
        axes.plot([*complete, len(study.trials) - 1], [*best, best[-1]], label="best so far", **line)
    failed = [trial.number for trial in study.trials if trial.state == "failed"]
    if failed:
        # They have no value: marked along the lower edge.
        look: dict[str, Any] = {"marker": "v", "color": "black", "label": "failed", "clip_on": False}
        axes.scatter(failed, [0.0] * len(failed), transform=axes.get_xaxis_transform(), **look)
    axes.set_xlabel("trial")
    axes.locator_params("x", integer=True)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _scale(axes: "Axes", dimension: Dimension, values: list[Any]) -> list[float]:
    """Give the axis the scale that a setting is searched on; return where its values lie on it.

    On a range a default that is no number, such as auto, lies nowhere.
    """
    if isinstance(dimension, CategoricalDistribution):
        # A default outside of the choices has a position too.
        ticks = list(dict.fromkeys([*dimension.choices, values[0]]))
        axes.set_xticks(range(len(ticks)), [str(value).lower() for value in ticks])
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        return [ticks.index(value) for value in values]
    values = [value if isinstance(value, int | float) else math.nan for value in values]
    if not dimension.log:
        axes.locator_params("x", integer=isinstance(dimension, IntDistribution))
        return values
    known = [value for value in values if not math.isnan(value)]
    low, high = min([*known, dimension.low]), 1.5 * max([*known, dimension.high])
    if low > 0:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.5, high)
    else:  # a default of 0 lies left of every power of ten
        axes.set_xscale("symlog", linthresh=dimension.low)
        axes.set_xlim(-dimension.low / 2, high)
    axes.xaxis.set_minor_formatter("")
    return values


def _draw_points(axes: "Axes", study: Study, positions: list[Any]) -> None:
    """Draw each trial that has a value, the defaults and the best one marked."""
    special = {"defaults": study.trials[0], "best": study.best}
    for label, look in LOOKS.items():
        points = [
            (position, trial.value)
            for position, trial in zip(positions, study.trials, strict=True)
            if trial.value is not None and (trial.state == label or trial is special.get(label))
        ]
        if points:
            axes.scatter(*zip(*points, strict=True), label=label, **look)
