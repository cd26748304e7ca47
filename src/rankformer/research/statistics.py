"""The seeds of one row put together, and numbers as text; `evaluation.comparison` has the paired tests between rows."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankformer.research.published import NDCG, Score
from rankformer.research.results import Computation, Result, Results, unpack

MISSING = "-"


class Spread(NamedTuple):
    """Mean and standard deviation (n - 1; None for a single value) over seeds."""

    mean: float
    standard_deviation: float | None
    values: tuple[float, ...]

    def __str__(self) -> str:
        spread = "" if self.standard_deviation is None else f"±{self.standard_deviation:.4f}".replace("±0.", "±.")
        return f"{self.mean:.4f}{spread}"


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return mean and standard deviation; None for no values."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, tuple(values))


class Row(NamedTuple):
    """The results of one row, one per seed that was computed."""

    seeds: tuple[int, ...]
    results: tuple[Result, ...]

    @classmethod
    def of(cls, computations: Sequence[Computation], results: Results) -> "Row":
        """Return the row of the computations that have a result."""
        there = [each for each in computations if each.key in results]
        return cls(tuple(each.seed for each in there), tuple(results[each.key] for each in there))

    @property
    def failures(self) -> list[str]:
        """Why trainings stopped early, where they did."""
        return [result["failed"] for result in self.results if result.get("failed")]

    def metric(self, name: str) -> Spread | None:
        """Return a metric over the seeds, None where nothing was measured."""
        return spread_of([result["metrics"][name] for result in self.results if result.get("metrics")])

    def per_user(self, name: str) -> NDArray[np.float64] | None:
        """Return each user's mean over seeds of a metric."""
        rows = [unpack(result["per_user"][name]) for result in self.results if result.get("metrics")]
        return np.mean(rows, axis=0) if rows else None

    def history(self, name: str) -> float | None:
        """Return the mean over seeds of a number of the training histories."""
        values = [result["history"][name] for result in self.results if result["history"][name] is not None]
        return statistics.fmean(values) if values else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as values that JSON can hold, without the values of single users."""
        kept = ("metrics", "history", "failed", "commit", "conditions", "versions", "protocol")
        runs = [{name: result.get(name) for name in kept} for result in self.results]
        return {"seeds": list(self.seeds), "runs": runs}


Plan = dict[tuple[Any, ...], list[Computation]]  # what an experiment computes; keys begin with the dataset's name
Rows = dict[tuple[Any, ...], Row]  # the same with results


def rows_of(dataset: str, rows: Rows) -> dict[str, Row]:
    """Return the rows of a dataset that have a result, by the second part of their keys."""
    return {key[1]: row for key, row in rows.items() if key[0] == dataset and row.seeds}


def shown(value: Spread | float | None) -> str:
    """Return a spread or a score as text, a dash for none."""
    return MISSING if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


def score_columns(row: Row, published: Score | None, recall: str) -> tuple[str, ...]:
    """Return the five strings of a row of scores: NDCG@20 published, ours, difference; recall published, ours."""
    there = published or (None, None)
    ndcg = row.metric(NDCG)
    gap = MISSING if ndcg is None or published is None else f"{100 * (ndcg.mean / published.ndcg - 1):+.1f}%"
    return shown(there[0]), shown(ndcg), gap, shown(there[1]), shown(row.metric(recall))


def seconds(value: float | None) -> str:
    """Return seconds as text, with the digits that mean something."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"
