"""Draw validation NDCG@20 over epochs and over seconds, from the logs of finished runs.

    python experiments/plot_learning_curves.py runs/paper/* [--out docs/learning-curves.png]

Runs are grouped by dataset, one colour each: a thin line per seed, with a marker at its best validation. Folders
without a finished run are skipped. Needs matplotlib (the extra `research`).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRIC, METRIC_LABEL = "ndcg@20", "validation NDCG@20"
PANELS = {"epoch": "epoch", "seconds": "training time (seconds)"}
# Colours of Okabe and Ito, told apart under every common colour blindness; line and marker differ as well.
LOOKS = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
)


@dataclass(frozen=True)
class Curve:
    """The validations of one run."""

    dataset: str
    seed: int
    validations: list[dict[str, float]]

    def values(self, name: str) -> list[float]:
        """Return one column of the validations."""
        return [validation[name] for validation in self.validations]

    @property
    def best(self) -> dict[str, float]:
        """The validation with the highest value."""
        return max(self.validations, key=lambda validation: validation[METRIC])


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the picture that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders")
    parser.add_argument("--out", type=Path, default=Path("docs/learning-curves.png"), help="picture to write")
    chosen = parser.parse_args(arguments)
    curves = [curve for folder in chosen.runs if (curve := read_curve(folder)) is not None]
    if not curves:
        print("error: none of the folders holds a finished run with validations", file=sys.stderr)
        return 2
    draw(by_dataset(curves), chosen.out)
    return 0


def read_curve(folder: Path) -> Curve | None:
    """Return the curve of a run folder, or None (with a note) where there is none."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    except FileNotFoundError as error:
        print(f"note: {folder} has no {Path(error.filename).name}; skipped", file=sys.stderr)
        return None
    validations = [event for event in events if event["event"] == "validation" and METRIC in event]
    if not validations:
        print(f"note: {folder} has no validation of {METRIC}; skipped", file=sys.stderr)
        return None
    return Curve(manifest["data"]["name"], manifest["seed"], validations)


def by_dataset(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Return the curves grouped by dataset, both in order of name and seed."""
    groups: dict[str, list[Curve]] = {}
    for curve in sorted(curves, key=lambda curve: (curve.dataset, curve.seed)):
        groups.setdefault(curve.dataset, []).append(curve)
    return groups


def draw(groups: dict[str, list[Curve]], path: Path) -> None:
    """Write the picture: one panel over epochs, one over seconds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(PANELS), figsize=(9.2, 3.9), sharey=True)
    for axis, (column, label) in zip(axes, PANELS.items(), strict=True):
        draw_panel(axis, column, groups)
        axis.set_xlabel(label)
    axes[0].set_ylabel(METRIC_LABEL)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(groups), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1), w_pad=2.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    plt.close(figure)
    print(f"drew {path}")


def draw_panel(axis: Any, column: str, groups: dict[str, list[Curve]]) -> None:
    """Draw every curve over one column of its validations."""
    for number, (dataset, curves) in enumerate(groups.items()):
        look = LOOKS[number % len(LOOKS)]
        for position, curve in enumerate(curves):
            label = legend_text(dataset, curves) if position == 0 else None
            draw_curve(axis, column, curve, look, label)
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.grid(True, color="#DDDDDD", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def draw_curve(axis: Any, column: str, curve: Curve, look: dict[str, Any], label: str | None) -> None:
    """Draw one thin line and its best validation."""
    color = look["color"]
    line = {"linestyle": look["linestyle"], "linewidth": 0.9}
    marker = {"marker": look["marker"], "markersize": 7, "markerfacecolor": "white"}
    axis.plot(curve.values(column), curve.values(METRIC), color=color, **line)
    # The label rides on an empty line, so that the legend shows line and marker together.
    axis.plot([], [], color=color, **line, **marker, label=label)
    axis.plot(curve.best[column], curve.best[METRIC], color=color, linestyle="none", zorder=3, **marker)


def legend_text(dataset: str, curves: Sequence[Curve]) -> str:
    """Return the dataset with its seeds and what the marker means."""
    seeds = f"{len(curves)} seeds" if len(curves) > 1 else "1 seed"
    return f"{dataset} ({seeds}; marker: best validation)"


if __name__ == "__main__":
    raise SystemExit(main())
