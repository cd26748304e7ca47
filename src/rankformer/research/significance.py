"""Whether one method's lead over another is more than the luck of which users were asked.

A paired t-test over users: each user's value under one method less the same user's value under the other, after the
mean over seeds. What is claimed is a difference of means over users, and that is what this test is about; with the
thousands of users of these datasets the mean is close to normal however skewed the values are. Wilcoxon's signed
ranks would ask another question (are the non-zero differences symmetric about 0?) and leave out the large part of
users for whom both methods score the same. Users are the sample: the test says nothing of other splits or datasets.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from rankformer.errors import DataError


@dataclass(frozen=True)
class PairedTest:
    """The outcome of a paired t-test.

    Attributes:
        users: how many pairs.
        difference: mean of first less second.
        low: lower end of the 95% confidence interval of the difference.
        high: its upper end.
        t: the statistic; 0 where all differences are 0.
        p: two-sided p-value.
    """

    users: int
    difference: float
    low: float
    high: float
    t: float
    p: float

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as values that JSON can hold."""
        return asdict(self)


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
