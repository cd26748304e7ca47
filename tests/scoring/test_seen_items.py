"""The compressed rows of seen items."""

import numpy as np
import pyarrow as pa
import pytest

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.seen_items import SeenItems


def test_repeated_and_overlapping_pairs_are_kept_once_and_sorted():
    train = Interactions.from_indices([2, 0, 2, 2], [3, 1, 0, 3], 4, 5)
    valid = Interactions.from_indices([2, 3], [0, 4], 4, 5)
    seen = SeenItems.of(train, valid)
    assert seen.offsets.tolist() == [0, 1, 1, 3, 4]
    assert seen.items.tolist() == [1, 0, 3, 4]
    assert seen.keys.tolist() == [1, 10, 13, 19]
    assert (seen.num_users, len(seen)) == (4, 4)


def test_rows_follow_the_order_and_repeats_of_the_users_asked_for():
    seen = SeenItems.of(Interactions.from_indices([2, 0, 2], [3, 1, 0], 3, 4))
    rows, items = seen.rows(np.array([2, 1, 0, 2]))
    assert list(zip(rows.tolist(), items.tolist(), strict=True)) == [(0, 0), (0, 3), (2, 1), (3, 0), (3, 3)]


def test_rows_agree_with_a_set_on_random_pairs():
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 30, 200), rng.integers(0, 17, 200)
    seen = SeenItems.from_pairs(users, items, 30, 17)
    asked = rng.integers(0, 30, 12)
    rows, columns = seen.rows(asked)
    known = set(zip(users.tolist(), items.tolist(), strict=True))
    expected = {(row, item) for row, user in enumerate(asked.tolist()) for item in range(17) if (user, item) in known}
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
    assert len(rows) == len(expected)


def test_contains_finds_exactly_the_pairs_and_never_an_empty_place():
    seen = SeenItems.of(Interactions.from_indices([0, 1], [3, 0], 2, 4))
    # Item -1 of user 1 has the key 3, which is also the key of user 0 and item 3.
    found = seen.contains(np.array([[0], [1]]), np.array([[3, 0, -1], [0, 3, -1]]))
    assert found.tolist() == [[True, False, False], [True, False, False]]


def test_no_pairs_at_all_is_an_empty_set_not_a_crash():
    seen = SeenItems.of(Interactions.from_indices([], [], 3, 4))
    assert not seen.contains(np.array([0, 2]), np.array([0, 3])).any()
    assert len(seen.rows(np.array([0, 1, 2]))[0]) == 0


def test_parts_with_other_id_maps_are_refused():
    one = Interactions.from_indices([0], [0], 2, 2)
    ids = IdMap(pa.array(["a", "b"]))
    other = Interactions(np.array([0], np.int32), np.array([0], np.int32), ids, ids)
    with pytest.raises(DataError, match="number their ids differently"):
        SeenItems.of(one, other)
    with pytest.raises(DataError, match="at least one part"):
        SeenItems.of()
