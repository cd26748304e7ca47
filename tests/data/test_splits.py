from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankformer.data.splits import split_labels
from rankformer.errors import ConfigError, DataError

ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=80)
KINDS = st.sampled_from(["random", "random-per-user", "last", "time"])


def split_rows(*arguments, **options):
    """Return the row numbers of train, valid and test."""
    labels = split_labels(*arguments, **options)
    return tuple(np.flatnonzero(labels == part) for part in range(3))


def arrays(rows):
    return np.array([u for u, _ in rows], dtype=np.int32), np.array([t for _, t in rows], dtype=np.int64)


@given(ROWS, KINDS, st.integers(0, 2**40))
def test_parts_are_all_rows_once_and_repeatable(rows, by, seed):
    users, times = arrays(rows)
    parts = split_rows(users, times, by, seed=seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(rows)))
    assert all((np.diff(part) > 0).all() for part in parts)
    again = split_rows(users, times, by, seed=seed)
    assert all(a.tolist() == b.tolist() for a, b in zip(parts, again, strict=True))


@given(st.integers(0, 500), st.integers(0, 100), st.integers(0, 100))
def test_random_sizes_are_the_shares_to_the_nearest_row(size, first, second):
    fractions = (first / 200, second / 200, 1 - (first + second) / 200)
    sizes = [len(part) for part in split_rows(np.zeros(size, np.int32), None, "random", fractions)]
    assert sizes[0] == pytest.approx(size * fractions[0], abs=0.51)
    assert sizes[2] == pytest.approx(size * fractions[2], abs=0.51)


def test_random_split_reproduces_the_papers_sizes():
    sizes = [len(part) for part in split_rows(np.zeros(173_111, np.int32), None)]
    assert sizes == [121_178, 17_311, 34_622]


def test_random_split_is_the_same_on_every_machine():
    train, valid, test = split_rows(np.zeros(10, np.int32), None, seed=5)
    assert (train.tolist(), valid.tolist(), test.tolist()) == ([2, 3, 4, 5, 6, 7, 8], [0], [1, 9])


@pytest.mark.parametrize("by", ["random", "random-per-user"])
def test_another_seed_is_another_split(by):
    users = np.repeat(np.arange(10, dtype=np.int32), 10)
    train = [split_rows(users, None, by, seed=seed)[0].tolist() for seed in (0, 1)]
    assert train[0] != train[1]


def test_random_split_has_no_preference_for_rows():
    counts = np.zeros(20)
    for seed in range(400):
        counts[split_rows(np.zeros(20, np.int32), None, seed=seed)[2]] += 1
    assert counts.min() > 50  # 80 expected, standard deviation 8
    assert counts.max() < 110


@given(ROWS, st.integers(0, 9))
def test_per_user_shares_hold_for_each_user(rows, seed):
    users, _ = arrays(rows)
    train, _valid, test = split_rows(users, None, "random-per-user", seed=seed)
    for user in set(users.tolist()):
        degree = (users == user).sum()
        in_train, in_test = (users[train] == user).sum(), (users[test] == user).sum()
        assert in_train == max(1, np.floor(0.7 * degree + 0.5 + 1e-9))
        assert in_test == min(degree - in_train, degree - np.floor(0.8 * degree + 0.5 + 1e-9))


@given(ROWS)
def test_last_takes_the_newest_row_of_each_user(rows):
    users, times = arrays(rows)
    train, valid, test = (set(part.tolist()) for part in split_rows(users, times, "last"))
    for user in set(users.tolist()):
        mine = sorted(np.flatnonzero(users == user).tolist(), key=lambda row: (times[row], row))
        assert set(mine) & test == (set(mine[-1:]) if len(mine) >= 2 else set())
        assert set(mine) & valid == (set(mine[-2:-1]) if len(mine) >= 3 else set())
        assert set(mine) & train


@given(ROWS)
def test_time_parts_do_not_overlap_in_time(rows):
    users, times = arrays(rows)
    parts = [times[part] for part in split_rows(users, times, "time")]
    filled = [part for part in parts if len(part)]
    assert all(before.max() < after.min() for before, after in pairwise(filled))
    assert len(parts[0]) >= np.floor(0.7 * len(rows) + 0.5)


def test_time_cuts_at_the_shares_when_times_differ():
    times = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    train, valid, test = split_rows(np.zeros(10, np.int32), times, "time")
    assert (train.tolist(), valid.tolist(), test.tolist()) == ([3, 4, 5, 6, 7, 8, 9], [2], [0, 1])


def test_time_with_no_train_share():
    train, _valid, test = split_rows(np.zeros(2, np.int32), np.array([1, 2]), "time", (0, 0, 1))
    assert len(train) == 0
    assert len(test) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"by": "rnd"}, "'rnd' is unknown; expected one of random, random-per-user, last, time"),
        ({"parts": (0.5, 0.5)}, "expected three fractions"),
        ({"parts": (0.5, 0.6, 0.2)}, "sum to 1"),
        ({"parts": (1.2, -0.4, 0.2)}, "sum to 1"),
        ({"parts": (float("nan"), 0.5, 0.5)}, "sum to 1"),
        ({"by": "last", "parts": (0.8, 0.1, 0.1)}, "leave parts out"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_refuses_settings_outside_their_range(arguments, words):
    with pytest.raises(ConfigError, match=words):
        split_rows(np.zeros(3, np.int32), np.zeros(3), **arguments)


DAYS = 1_700_000_000 + 86_400 * np.arange(10)


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9], ids=["seconds", "milliseconds", "microseconds", "nanoseconds"])
@pytest.mark.parametrize("moment", [{"test_days": 3}, {"test_from": "2023-11-21T22:13:20"}], ids=["days", "date"])
def test_the_test_part_begins_at_a_moment_whatever_the_unit_of_the_times(unit, moment):
    times = (DAYS * unit).astype(np.int64)
    train, valid, test = split_rows(np.zeros(10, np.int32), times, "time", **moment)
    assert (train.tolist(), valid.tolist(), test.tolist()) == ([0, 1, 2, 3, 4, 5], [6], [7, 8, 9])


def test_a_moment_may_be_a_number_as_in_the_log_and_a_date_may_have_a_zone():
    users = np.zeros(10, np.int32)
    *_, test = split_rows(users, np.arange(10.0), "time", test_from="4.5")
    assert test.tolist() == [5, 6, 7, 8, 9]
    *_, test = split_rows(users, DAYS, "time", test_from="2023-11-23T00:13:20+02:00")
    assert test.tolist() == [8, 9]


def test_the_fractions_divide_what_is_before_the_moment():
    train, valid, test = split_rows(np.zeros(10, np.int32), DAYS, "time", (0.5, 0.5, 0), test_days=2)
    assert (len(train), len(valid), len(test)) == (4, 4, 2)


def test_a_moment_that_cannot_be_is_refused():
    users = np.zeros(10, np.int32)
    with pytest.raises(DataError, match="no interaction is before 2001-01-01 00:00"):
        split_rows(users, DAYS, "time", test_from="2001-01-01")
    with pytest.raises(DataError, match="is no date in seconds"):
        split_rows(users, np.arange(10), "time", test_days=1)
    for wrong in ({"test_from": "May"}, {"test_days": -1}, {"test_days": 1, "test_from": "2023-11-20"}):
        with pytest.raises(ConfigError):
            split_rows(users, DAYS, "time", **wrong)
    with pytest.raises(ConfigError, match="only the split by time has it"):
        split_rows(users, DAYS, "random", test_days=1)


@pytest.mark.parametrize("by", ["last", "time"])
def test_split_by_time_needs_times(by):
    with pytest.raises(DataError, match=f"by {by} needs a time"):
        split_rows(np.zeros(3, np.int32), None, by)


def test_per_user_split_leaves_each_user_something_to_learn_from():
    train, _valid, _test = split_rows(np.arange(5, dtype=np.int32), None, "random-per-user", (0.2, 0.4, 0.4))
    assert train.tolist() == [0, 1, 2, 3, 4]
