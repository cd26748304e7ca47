"""What ranks need: the sums of a step by hand, memory that falls with ranks, and the bandwidths people write."""

import pytest

from rankformer.errors import ConfigError
from rankformer.planning.ranks import (
    Size,
    bytes_sent,
    memory_per_rank,
    most_useful_ranks,
    parse_bandwidth,
    plan_ranks,
    reduced_numbers,
    step_seconds,
)

SMALL = Size(users=100, items=10, interactions=1000, dim=4, layers=2)


def test_the_numbers_summed_in_a_step_by_hand():
    # rankformer: (warm-up + 2 layers) x (forward + backward) + optimiser = 7 tables of 40, and 2 (16 + 8 + 10 + 1)
    assert reduced_numbers("rankformer", SMALL) == 7 * 40 + 2 * 35
    assert reduced_numbers("lightgcn", SMALL) == 6 * 40
    assert reduced_numbers("mf", SMALL) == 40
    assert bytes_sent("mf", SMALL, 2) == 40 * 4  # half of the table, reduced and gathered
    assert bytes_sent("mf", SMALL, 1) == 0
    with pytest.raises(ConfigError, match="ease are not known"):
        reduced_numbers("ease", SMALL)


def test_users_and_interactions_are_divided_and_items_are_not():
    one, four = memory_per_rank(SMALL, 1), memory_per_rank(SMALL, 4)
    assert four["users"] == one["users"] / 4
    assert four["interactions"] == one["interactions"] / 4
    assert one["items"] / 2 < four["items"] < one["items"]
    assert step_seconds(SMALL, 1, 3.0) == pytest.approx(3.0)
    assert 3.0 / 4 < step_seconds(SMALL, 4, 3.0) < 3.0


def test_more_ranks_than_useful_ones_are_no_longer_half_as_fast():
    size = Size(10**6, 10**5, 10**8, 64, 3)
    useful = most_useful_ranks("rankformer", size, parse_bandwidth("10Gbit"), 100.0)
    plan = plan_ranks("rankformer", size, useful, parse_bandwidth("10Gbit"), 100.0)
    items = step_seconds(size, 1 << 62, 100.0)
    assert plan["seconds"]["compute"] - items == pytest.approx(plan["seconds"]["network"], rel=0.1)


@pytest.mark.parametrize(("text", "rate"), [("10Gbit", 1.25e9), ("800 Mbit/s", 1e8), ("2.5gbit", 3.125e8)])
def test_bandwidths(text, rate):
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize("text", ["10", "0Gbit", "10GB", "fast", ""])
def test_other_bandwidths_are_refused(text):
    with pytest.raises(ConfigError, match="10Gbit"):
        parse_bandwidth(text)
