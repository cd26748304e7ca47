"""The seeds of one row put together, and numbers as texts."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankformer.research.cells import Cell, Result
from rankformer.research.published import NDCG, Score
from rankformer.research.runner import Results
from rankformer.research.trained import unpack

MISSING = "-"


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1; None for a single value) over seeds."""

    mean: float
    deviation: float | None
    values: tuple[float, ...]

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return f"{self.mean:.4f}{spread}"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can hold."""
        return {"mean": self.mean, "standard_deviation": self.deviation, "values": list(self.values)}


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return mean and standard deviation, None of nothing."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, tuple(values))


@dataclass(frozen=True)
class Row:
    """The results of one row's cells, one per seed that was computed."""

    seeds: tuple[int, ...]
    results: tuple[Result, ...]

    @classmethod
    def of(cls, cells: Sequence[Cell], results: Results) -> "Row":
        """Return the row of the cells that have a result."""
        there = [cell for cell in cells if cell.key in results]
        return cls(tuple(cell.seed for cell in there), tuple(results[cell.key] for cell in there))

    @property
    def measured(self) -> list[Result]:
        """The results that have metrics."""
        return [result for result in self.results if result.get("metrics")]

    @property
    def failures(self) -> list[str]:
        """What each training that broke off said."""
        return [result["failed"] for result in self.results if result.get("failed")]

    def metric(self, name: str) -> Spread | None:
        """Return a metric over the seeds, None where nothing was measured."""
        return spread_of([result["metrics"][name] for result in self.measured])

    def per_user(self, name: str) -> NDArray[np.float64] | None:
        """Return each user's mean over seeds of a metric."""
        rows = [unpack(result["per_user"][name]) for result in self.measured]
        return np.mean(rows, axis=0) if rows else None

    def course(self, name: str) -> Spread | None:
        """Return a number of the trainings' course over the seeds."""
        values = [result["course"][name] for result in self.results]
        return spread_of([value for value in values if value is not None])

    def to_dict(self) -> dict[str, Any]:
        """Return the row as values that JSON can hold, without the values of single users."""
        kept = ("metrics", "course", "failed", "conditions", "versions", "protocol")
        return {
            "seeds": list(self.seeds),
            "runs": [{name: result.get(name) for name in kept} for result in self.results],
        }


def shown(value: Spread | None) -> str:
    """Return a spread as text, a dash for none."""
    return MISSING if value is None else str(value)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number as text, a dash for none."""
    return MISSING if value is None else f"{value:.{digits}f}"


def difference(ours: Spread | None, published: float | None) -> str:
    """Return ours less the published number, absolute and in per cent."""
    if ours is None or published is None:
        return MISSING
    gap = ours.mean - published
    return f"{gap:+.4f} ({100 * gap / published:+.1f}%)"


def beside(row: Row, published: Score | None, recall: str) -> tuple[str, ...]:
    """Return the six texts of a row of scores: published, ours and difference, of NDCG@20 and of the recall named."""
    printed = published or (None, None)
    texts: list[str] = []
    for metric, value in zip((NDCG, recall), printed, strict=True):
        ours = row.metric(metric)
        texts += [number(value), shown(ours), difference(ours, value)]
    return tuple(texts)


def seconds(value: float | None) -> str:
    """Return seconds as text, with the digits that mean something."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def chance(p: float) -> str:
    """Return a p-value as text."""
    return f"{p:.1e}" if p < 0.001 else f"{p:.3f}"
