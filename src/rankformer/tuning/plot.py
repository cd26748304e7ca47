"""A picture of a search: how the best value grew, and what each setting did to it."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rankformer.files import atomic_path
from rankformer.tuning.report import picture_path
from rankformer.tuning.space import Choices, Dimension, Range
from rankformer.tuning.study import Study
from rankformer.tuning.trials import State, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by colour-blind eyes; the shapes tell them apart in grey print too.
LOOKS: dict[State, dict[str, Any]] = {
    "complete": {"color": "#0072B2", "marker": "o", "s": 28},
    "pruned": {"color": "#E69F00", "marker": "x", "s": 28},
}
BEST_COLOUR = "#D55E00"
DEFAULTS: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "marker": "D", "s": 70}
BEST: dict[str, Any] = {"color": BEST_COLOUR, "marker": "*", "s": 150, "zorder": 3}


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
    course = figure.add_subplot(grid[0, :])
    _draw_course(course, study)
    for place, (name, dimension) in enumerate(study.space.items()):
        axes = figure.add_subplot(grid[1 + place // columns, place % columns])
        _draw_setting(axes, study, name, dimension)
    aim = study.objective
    figure.suptitle(f"{aim.method.name} on {aim.data.name}, {len(study.trials)} trials, seed {aim.seed}")
    with atomic_path(picture_path(study)) as temporary:
        figure.savefig(temporary, format="png", dpi=130)


def _draw_course(axes: "Axes", study: Study) -> None:
    _draw_points(axes, study, [float(trial.number) for trial in study.trials])
    numbers, heights = _best_so_far(study.trials)
    axes.plot(numbers, heights, color=BEST_COLOUR, drawstyle="steps-post", linewidth=1.5, label="best so far", zorder=0)
    failed = [trial.number for trial in study.trials if trial.state == "failed"]
    if failed:
        # They have no value: marked along the lower edge.
        edge = axes.get_xaxis_transform()
        look: dict[str, Any] = {"marker": "v", "color": "black", "label": "failed", "clip_on": False}
        axes.scatter(failed, [0.0] * len(failed), transform=edge, **look)
    axes.set_xlabel("trial")
    axes.set_ylabel(_value_label(study))
    _whole_ticks(axes)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _draw_setting(axes: "Axes", study: Study, name: str, dimension: Dimension) -> None:
    values = [trial.settings[name] for trial in study.trials]
    if isinstance(dimension, Choices):
        # A default outside of the choices has a place too.
        ticks = list(dict.fromkeys([*dimension.values, values[0]]))
        places = [float(ticks.index(value)) for value in values]
        axes.set_xticks(range(len(ticks)), [str(value).lower() for value in ticks])
        axes.set_xlim(-0.5, len(ticks) - 0.5)
    else:
        places = [float(value) for value in values]
        _scale(axes, dimension, min(places), max(places))
    _draw_points(axes, study, places)
    is_log = isinstance(dimension, Range) and dimension.log
    axes.set_xlabel(f"{name}{' (log scale)' if is_log else ''}")
    axes.set_ylabel(_value_label(study))
    axes.grid(alpha=0.3)


def _scale(axes: "Axes", dimension: Range, smallest: float, largest: float) -> None:
    """Give the axis the scale that the range is searched on."""
    from matplotlib.ticker import NullFormatter

    if not dimension.log:
        if dimension.whole:
            _whole_ticks(axes)
        return
    if smallest > 0:
        axes.set_xscale("log")
        axes.set_xlim(min(smallest, dimension.low) / 1.5, max(largest, dimension.high) * 1.5)
    else:  # a default of 0 lies left of every power of ten
        axes.set_xscale("symlog", linthresh=dimension.low)
        axes.set_xlim(-dimension.low / 2, max(largest, dimension.high) * 1.5)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _whole_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_points(axes: "Axes", study: Study, places: Sequence[float]) -> None:
    """Draw each trial with a value at its place, the defaults and the best one marked."""
    points = [(place, trial.value, trial) for place, trial in zip(places, study.trials, strict=True)]
    for state, look in LOOKS.items():
        chosen = [(place, value) for place, value, trial in points if trial.state == state]
        if chosen:
            axes.scatter(*zip(*chosen, strict=True), label=state, **look)
    marked: list[tuple[Trial | None, str, dict[str, Any]]] = [
        (study.trials[0], "defaults", DEFAULTS),
        (study.best, "best", BEST),
    ]
    for wanted, label, look in marked:
        for place, value, trial in points:
            if trial is wanted and value is not None:
                axes.scatter([place], [value], label=label, **look)


def _best_so_far(trials: Sequence[Trial]) -> tuple[list[int], list[float]]:
    numbers, heights = [], []
    best = -math.inf
    for trial in trials:
        if trial.state == "complete" and trial.value is not None:
            best = max(best, trial.value)
        if best > -math.inf:
            numbers.append(trial.number)
            heights.append(best)
    return numbers, heights


def _value_label(study: Study) -> str:
    return f"validation {study.objective.metric}"
