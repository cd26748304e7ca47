"""A picture of a search: how the best value grew, and what each setting did to it."""

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from rankformer.files import atomic_path
from rankformer.tuning.objective import Trial
from rankformer.tuning.report import PICTURE
from rankformer.tuning.space import Choices, Dimension, Range
from rankformer.tuning.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by colour-blind eyes; the shapes tell them apart in grey print too.
BEST_COLOUR = "#D55E00"
LOOKS: dict[str, dict[str, Any]] = {
    "complete": {"color": "#0072B2", "marker": "o", "s": 28},
    "pruned": {"color": "#E69F00", "marker": "x", "s": 28},
    "defaults": {"facecolor": "none", "edgecolor": "black", "marker": "D", "s": 70},
    "best": {"color": BEST_COLOUR, "marker": "*", "s": 150, "zorder": 3},
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def draw(study: Study) -> None:
    """Write the picture of a search as PNG, in one step."""
    from matplotlib.figure import Figure

    columns = {1: 1, 2: 2, 4: 2}.get(len(study.space), 3)
    rows = 1 + math.ceil(len(study.space) / columns)
    # A figure of its own, without pyplot: nothing of a notebook's state is touched.
    figure = Figure(figsize=(max(8.0, 3.6 * columns), 3.0 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, columns)
    _draw_history(figure.add_subplot(grid[0, :]), study)
    for position, (name, dimension) in enumerate(study.space.items()):
        axes = figure.add_subplot(grid[1 + position // columns, position % columns])
        _draw_setting(axes, study, name, dimension)
    for axes in figure.axes:
        axes.set_ylabel(f"validation {study.objective.metric}")
        axes.grid(alpha=0.3)
    aim = study.objective
    figure.suptitle(f"{aim.method.name} on {aim.data.name}, {len(study.trials)} trials, seed {aim.seed}")
    with atomic_path(aim.folder / PICTURE) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def _draw_history(axes: "Axes", study: Study) -> None:
    from matplotlib.ticker import MaxNLocator

    _draw_points(axes, study, [trial.number for trial in study.trials])
    complete = [trial for trial in study.trials if trial.state == "complete"]
    best = list(accumulate((trial.value for trial in complete if trial.value is not None), max))
    if best:
        numbers = [*(trial.number for trial in complete), len(study.trials) - 1]
        line: dict[str, Any] = {"color": BEST_COLOUR, "drawstyle": "steps-post", "linewidth": 1.5, "zorder": 0}
        axes.plot(numbers, [*best, best[-1]], label="best so far", **line)
    failed = [trial.number for trial in study.trials if trial.state == "failed"]
    if failed:
        # They have no value: marked along the lower edge.
        look: dict[str, Any] = {"marker": "v", "color": "black", "label": "failed", "clip_on": False}
        axes.scatter(failed, [0.0] * len(failed), transform=axes.get_xaxis_transform(), **look)
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _draw_setting(axes: "Axes", study: Study, name: str, dimension: Dimension) -> None:
    values = [trial.settings[name] for trial in study.trials]
    if isinstance(dimension, Choices):
        # A default outside of the choices has a position too.
        ticks = list(dict.fromkeys([*dimension.values, values[0]]))
        values = [ticks.index(value) for value in values]
        axes.set_xticks(range(len(ticks)), [str(value).lower() for value in ticks])
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.set_xlabel(name)
    else:
        _scale(axes, dimension, min(values), max(values))
        axes.set_xlabel(f"{name} (log scale)" if dimension.log else name)
    _draw_points(axes, study, values)


def _scale(axes: "Axes", dimension: Range, smallest: float, largest: float) -> None:
    """Give the axis the scale that the range is searched on."""
    from matplotlib.ticker import MaxNLocator, NullFormatter

    if not dimension.log:
        axes.xaxis.set_major_locator(MaxNLocator(integer=dimension.integer))
        return
    if smallest > 0:
        axes.set_xscale("log")
        axes.set_xlim(min(smallest, dimension.low) / 1.5, max(largest, dimension.high) * 1.5)
    else:  # a default of 0 lies left of every power of ten
        axes.set_xscale("symlog", linthresh=dimension.low)
        axes.set_xlim(-dimension.low / 2, max(largest, dimension.high) * 1.5)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_points(axes: "Axes", study: Study, positions: list[float]) -> None:
    """Draw each trial that has a value, the defaults and the best one marked."""

    def groups(trial: Trial) -> list[str]:
        marks = {"defaults": trial.number == 0, "best": trial is study.best}
        return [trial.state, *(label for label, marked in marks.items() if marked)]

    for label, look in LOOKS.items():
        chosen = [pair for pair in zip(positions, study.trials, strict=True) if label in groups(pair[1])]
        points = [(position, trial.value) for position, trial in chosen if trial.value is not None]
        if points:
            axes.scatter(*zip(*points, strict=True), label=label, **look)
