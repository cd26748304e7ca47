"""Split interactions into train, valid and test. Plain arrays in, the part of each row out.

random           each interaction independently, over the whole log (the paper's 7:1:2)
random-per-user  the same within each user, who keeps at least one interaction in train
last             each user's newest interaction to test, the one before it to valid
time             everything before one moment to train, everything after another to test; the second may be a date, or
                 some days before the newest interaction, and then the fractions of train and valid divide the rest
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rankformer.data.values import per_second
from rankformer.errors import ConfigError, DataError

SplitName = Literal["random", "random-per-user", "last", "time"]
Fractions = tuple[float, float, float]
Labels = NDArray[np.int8]
"""The part of each interaction of a log: 0 train, 1 valid, 2 test."""

DEFAULT_PARTS = (0.7, 0.1, 0.2)


def split_labels(
    users: NDArray[np.int32],
    times: NDArray[Any] | None,
    by: str = "random",
    parts: Sequence[float] = DEFAULT_PARTS,
    seed: int = 0,
    test_from: str | float | None = None,
    test_days: float | None = None,
) -> Labels:
    """Return the part of each row.

    Args:
        users: user index of each row.
        times: when each row happened; needed by "last" and "time".
        by: one of `SplitName`.
        parts: fractions of train, valid and test, which sum to 1; "last" has none.
        seed: chooses the random splits; the others do not look at it.
        test_from: of the split by time, the first moment of the test part: a date, or a number as in `times`.
        test_days: of the split by time, how many of the newest days are the test part, in place of `test_from`.
    """
    fractions = check_split(by, parts, test_from, test_days)
    if by == "random":
        return _random(np.zeros_like(users), fractions, seed)
    if by == "random-per-user":
        # A user with nothing in train cannot be learned.
        return _random(users, fractions, seed, at_least_train=1 if fractions[0] > 0 else 0)
    if times is None:
        raise no_times(by)
    if by == "last":
        return _last(users, times)
    if test_from is None and test_days is None:
        return _by_time(times, fractions)
    return _by_date(times, fractions, first_test_time(times, test_from, test_days))


def no_times(by: str) -> DataError:
    """Return the error for a log without the times that a split needs."""
    return DataError(f"the split by {by} needs a time per interaction, and this log has none; name its time column")


def check_split(
    by: str, parts: Sequence[float], test_from: str | float | None = None, test_days: float | None = None
) -> Fractions:
    """Return the fractions of a split if its settings, those of `split_labels`, fit together; else a ConfigError."""
    if by not in get_args(SplitName):
        raise ConfigError(f"split by {by!r} is unknown; expected one of {', '.join(get_args(SplitName))}")
    fractions = check_parts(parts)
    if by == "last" and fractions != DEFAULT_PARTS:
        raise ConfigError(
            f"parts={fractions}: the split by last takes one interaction per user, not fractions; leave parts out"
        )
    if test_from is not None and test_days is not None:
        raise ConfigError(f"test_from={test_from!r} and test_days={test_days:g} contradict each other; use one of them")
    if by != "time" and (test_from is not None or test_days is not None):
        name, value = ("test_from", test_from) if test_days is None else ("test_days", test_days)
        raise ConfigError(f"{name}={value!r}: only the split by time has it; add split=time (--split time)")
    return fractions


def check_parts(parts: Sequence[float]) -> Fractions:
    """Return the three fractions if they are not negative and sum to 1; else raise a ConfigError."""
    fractions = tuple(float(fraction) for fraction in parts)
    if len(fractions) != 3:
        raise ConfigError(f"parts={fractions}: expected three fractions (train, valid, test), found {len(fractions)}")
    if not all(0 <= fraction <= 1 for fraction in fractions) or abs(sum(fractions) - 1) > 1e-9:
        raise ConfigError(f"parts={fractions}: expected fractions from 0 to 1 that sum to 1, such as 0.7,0.1,0.2")
    return fractions


def cuts(size: Any, fractions: Fractions) -> tuple[Any, Any]:
    """Return where train and valid end among `size` rows (or for each size of an array), to the nearest row."""
    first = np.floor(size * fractions[0] + 0.5 + 1e-9).astype(np.int64)
    second = np.floor(size * (1 - fractions[2]) + 0.5 + 1e-9).astype(np.int64)
    return first, np.maximum(first, second)


def _positions(users: NDArray[np.int32], order: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each row, listed in `order` (users together), its position among its user's rows and their number."""
    counts = np.bincount(users)
    starts = np.cumsum(counts) - counts
    owner = users[order]
    return np.arange(len(users)) - starts[owner], counts[owner]


def _random(groups: NDArray[np.int32], fractions: Fractions, seed: int, at_least_train: int = 0) -> Labels:
    """Split the rows of each group at random, the first `at_least_train` of them to train."""
    if seed < 0:
        raise ConfigError(f"seed={seed}: expected an integer from 0")
    # Raw generator output and a stable sort: numpy keeps these bits for ever, unlike shuffle() or permutation().
    order = np.lexsort((np.atleast_1d(np.random.PCG64(seed).random_raw(len(groups))), groups))
    position, count = _positions(groups, order)
    first, second = cuts(count, fractions)
    first = np.maximum(first, at_least_train)
    labels = np.empty(len(groups), dtype=np.int8)
    labels[order] = (position >= first).astype(np.int8) + (position >= np.maximum(first, second))
    return labels


def random_thresholds(total: int, fractions: Fractions, seed: int) -> tuple[int, int]:
    """Return two values such that the split "random" puts a row into part (value >= first) + (value >= second).

    A row's value is the raw output of the generator at its position among `total` rows: what splits the rows of a log
    that does not fit into memory. The values are drawn twice, to count their leading bits and to sort those at a cut.
    """
    counts = np.zeros(1 << 16, dtype=np.int64)
    for values in raw_values(total, seed):
        counts += np.bincount((values >> np.uint64(48)).astype(np.int64), minlength=1 << 16)
    ends = np.cumsum(counts)
    wanted = [int(cut) for cut in cuts(np.int64(total), fractions)]
    bins = [int(np.searchsorted(ends, cut, side="right")) for cut in wanted]
    near: dict[int, list[NDArray[np.uint64]]] = {each: [] for each in bins}
    for values in raw_values(total, seed):
        leading = (values >> np.uint64(48)).astype(np.int64)
        for each, chosen in near.items():
            chosen.append(values[leading == each])
    found = [
        2**64 if cut == total else int(np.sort(np.concatenate(near[each]))[cut - int(ends[each] - counts[each])])
        for cut, each in zip(wanted, bins, strict=True)
    ]
    return found[0], found[1]


def labels_by_value(values: NDArray[np.uint64], thresholds: tuple[int, int]) -> Labels:
    """Return the part of rows with these raw values, given what `random_thresholds` found."""
    above = [values >= np.uint64(threshold) for threshold in thresholds if threshold < 2**64]
    return np.sum(above, axis=0, dtype=np.int8) if above else np.zeros(len(values), dtype=np.int8)


def raw_values(total: int, seed: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the generator's raw outputs for rows 0..total-1, a few million at a time."""
    generator = np.random.PCG64(seed)
    for begin in range(0, total, 1 << 22):
        yield np.atleast_1d(generator.random_raw(min(1 << 22, total - begin)))


def _last(users: NDArray[np.int32], times: NDArray[Any]) -> Labels:
    # Rows at the same time count as happening in file order. One row: train. Two: train, test. More: all three.
    order = np.lexsort((times, users))
    position, count = _positions(users, order)
    labels = np.zeros(len(users), dtype=np.int8)
    labels[order[(position == count - 2) & (count >= 3)]] = 1
    labels[order[(position == count - 1) & (count >= 2)]] = 2
    return labels


def _by_time(times: NDArray[Any], fractions: Fractions) -> Labels:
    # Rows at one moment stay together, in the part where the first of them falls.
    ordered = np.sort(times)
    labels = np.zeros(len(times), dtype=np.int8)
    for cut in cuts(np.int64(len(times)), fractions):
        labels += (times > ordered[cut - 1]) if cut > 0 else np.True_
    return labels


def _by_date(times: NDArray[Any], fractions: Fractions, first: float) -> Labels:
    """Split at a moment: from it on test, before it train and valid in the proportion of their fractions."""
    labels = np.full(len(times), 2, dtype=np.int8)
    before = times < first
    labels[before] = _by_time(times[before], shares_before(fractions))
    return labels


def shares_before(fractions: Fractions) -> Fractions:
    """Return how the interactions before a given test part divide into train and valid."""
    train, valid, _ = fractions
    share = train / (train + valid) if train + valid > 0 else 1.0
    return share, 1 - share, 0.0


def first_test_time(times: NDArray[Any], test_from: str | float | None, test_days: float | None) -> float:
    """Return where the test part begins, in the unit of the times, of which the oldest and the newest are enough.

    Raises:
        DataError: nothing, or everything, is before that moment.
    """
    first = _moment(times, test_from, test_days)
    if not times.min() < first <= times.max():
        side = "before" if times.min() >= first else "from"
        raise DataError(
            f"no interaction is {side} {_shown_time(times, first)}, where the test part begins: the log runs from "
            f"{_shown_time(times, times.min())} to {_shown_time(times, times.max())}; choose another moment"
        )
    return first


def _moment(times: NDArray[Any], test_from: str | float | None, test_days: float | None) -> float:
    if test_days is not None:
        if not test_days > 0:
            raise ConfigError(f"test_days={test_days:g}: expected a number of days above 0")
        return float(np.nextafter(float(times.max()) - test_days * 86400 * _ticks(times), np.inf))
    try:
        return float(test_from or 0)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(str(test_from))
    except ValueError:
        raise ConfigError(f"test_from={test_from!r}: expected a date such as 2026-05-01, or a number") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * _ticks(times)


def _ticks(times: NDArray[Any]) -> float:
    newest = float(times.max(initial=0))
    if (ticks := per_second(newest)) is None:
        found = f"the newest time, {newest:g}, is no date in seconds or smaller units since 1970"
        raise DataError(f"{found}; use fractions")
    return ticks


def _shown_time(times: NDArray[Any], moment: float) -> str:
    try:
        return datetime.fromtimestamp(float(moment) / _ticks(times), UTC).strftime("%Y-%m-%d %H:%M")
    except (DataError, ValueError, OverflowError):
        return f"{moment:g}"
