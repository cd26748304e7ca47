"""Runs side by side on one test part: metrics, paired tests over users, and where the difference comes from.

The test is a paired t-test over users: each user's value under one method less the same user's value under the other.
What is claimed is a difference of means over users, and that is what this test is about; with thousands of users the
mean is close to normal however skewed the values are. Wilcoxon's signed ranks would test another question (are the
non-zero differences symmetric about 0?) and leave out the many users for whom both methods score the same. Users are
the sample: the test says nothing of other splits or datasets.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.evaluation.evaluator import Evaluation, GroundTruth, measure
from rankformer.evaluation.metrics import OVER_LISTS, diversity, parse_metrics
from rankformer.scoring.seen_items import SeenItems


class PairedTest(NamedTuple):
    """A paired t-test: mean of first less second, its 95% confidence interval, the statistic and two-sided p-value."""

    users: int
    difference: float
    low: float
    high: float
    t: float
    p: float


def paired_test(first: NDArray[np.float64], second: NDArray[np.float64]) -> PairedTest:
    """Return the paired t-test of two methods' per-user values, in the same order of users."""
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise DataError(f"a paired test needs the same two or more users; found {first.shape} and {second.shape}")
    gaps = first - second
    n, mean = len(gaps), float(gaps.mean())
    error = float(gaps.std(ddof=1)) / math.sqrt(n)
    if error == 0:
        same = mean == 0
        return PairedTest(n, mean, mean, mean, 0.0 if same else math.copysign(1e300, mean), 1.0 if same else 0.0)
    t = mean / error
    reach = float(stdtrit(n - 1, 0.975)) * error
    return PairedTest(n, mean, mean - reach, mean + reach, t, 2 * float(stdtr(n - 1, -abs(t))))


def p_value(p: float) -> str:
    """Return a p-value as text."""
    return f"{p:.1e}" if p < 0.001 else f"{p:.3f}"


class Group(NamedTuple):
    """Users or test interactions that are alike, and how well each run does on them."""

    label: str  # range of their training interactions
    size: int
    values: dict[str, float]  # by run: mean of the metric over the users, or the fraction of the interactions found


@dataclass(frozen=True)
class Comparison:
    """Runs on one test part.

    Attributes:
        metric: what is tested and split by activity.
        runs: metrics of each run; those of its lists are at the largest cutoff.
        tests: of the metric, each further run less the first.
        by_activity: users by the number of their training interactions.
        by_popularity: test interactions by the number of training interactions of their item.
    """

    metric: str
    runs: dict[str, dict[str, float]]
    tests: dict[str, PairedTest]
    by_activity: list[Group]
    by_popularity: list[Group]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as values that JSON can hold."""
        tests = {name: test._asdict() for name, test in self.tests.items()}
        groups = {name: [group._asdict() for group in getattr(self, name)] for name in ("by_activity", "by_popularity")}
        return {**asdict(self), "tests": tests, **groups}


def compare(evaluations: Mapping[str, Evaluation], train: Interactions, test: Interactions) -> Comparison:
    """Return the evaluations of two or more runs side by side; the first metric of the first is tested.

    Args:
        evaluations: of each run, by its name, on the same test part by the same protocol.
        train: the training interactions of that split, over the id maps of the runs.
        test: its test interactions.

    Raises:
        DataError: there are fewer than two, or they are not of one split, mask and cutoffs.
    """
    if len(evaluations) < 2:
        raise DataError("a comparison needs two or more runs")
    (first_name, first), *_ = evaluations.items()
    for name, evaluation in evaluations.items():
        _check_comparable(first_name, first, name, evaluation)
    metric, cutoff = next(iter(first.per_user)), max(first.protocol.k)
    truth, fitted = GroundTruth.of(test, train.user_ids, train.item_ids), SeenItems.of(train)
    popularity = np.bincount(train.items, minlength=train.num_items)
    of_lists = parse_metrics([f"{name}@{cutoff}" for name in OVER_LISTS])
    runs: dict[str, dict[str, float]] = {}
    found: dict[str, NDArray[np.bool_]] = {}
    users, items = np.divmod(truth.relevant.keys, truth.relevant.num_items)
    for name, evaluation in evaluations.items():
        values = measure(evaluation.lists, truth, popularity, of_lists)
        spread = {str(key): float(value) for key, value in values.items()}
        runs[name] = {**evaluation.metrics, **spread, f"diversity@{cutoff}": diversity(evaluation.lists, fitted)}
        rows, columns = np.nonzero(evaluation.lists >= 0)
        listed = SeenItems.from_pairs(
            truth.users[rows], evaluation.lists[rows, columns], truth.relevant.num_users, truth.relevant.num_items
        )
        found[name] = listed.contains(users, items)
    activity = np.bincount(train.users, minlength=truth.relevant.num_users)[truth.users]
    item_counts = np.pad(popularity, (0, test.num_items))[items]
    per_user = {name: evaluation.per_user[metric] for name, evaluation in evaluations.items()}
    tests = {name: paired_test(values, per_user[first_name]) for name, values in per_user.items() if name != first_name}
    return Comparison(metric, runs, tests, _grouped(activity, per_user), _grouped(item_counts, found))


def _check_comparable(first_name: str, first: Evaluation, name: str, evaluation: Evaluation) -> None:
    """Refuse two evaluations that differ in split, mask or cutoffs."""
    ours, theirs = (
        {
            "split": f"split {each.protocol.split} ({each.protocol.split_hash})",
            "mask": f"mask {each.protocol.mask}",
            "k": f"cutoffs {','.join(map(str, each.protocol.k))}",
            "metrics": f"metrics {', '.join(each.metrics)}",
        }
        for each in (first, evaluation)
    )
    if first.protocol.split_hash == evaluation.protocol.split_hash:
        ours.pop("split"), theirs.pop("split")
    for what in ours:
        if ours[what] != theirs[what]:
            raise DataError(
                f"{name} was evaluated on another {what}: {theirs[what]}, where {first_name} has {ours[what]}; "
                "train both on the same data, split and protocol"
            )


def _grouped(counts: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> list[Group]:
    """Return the mean of each run's values by count: none, and three groups of about equal size among the others."""
    some = counts[counts > 0]
    thirds = np.unique(np.quantile(some, [1 / 3, 2 / 3], method="lower")) if len(some) else np.zeros(0)
    number = np.where(counts == 0, 0, 1 + np.searchsorted(thirds, counts))
    groups = []
    for each in np.unique(number):
        inside = number == each
        low, high = counts[inside].min(), counts[inside].max()
        means = {name: float(value[inside].mean()) for name, value in values.items()}
        groups.append(Group(f"{low}" if low == high else f"{low}-{high}", int(inside.sum()), means))
    return groups
