from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from rankformer.data import Interactions
from rankformer.data.items import Items
from rankformer.data.parts import Parts
from rankformer.errors import ConfigError, DataError

TESTED = {
    "pandas": ("source", "pandas"),
    "polars": ("source", "polars"),
    "Arrow": ("source", "pyarrow"),
    "SciPy": ("source", "scipy"),
}
PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=60)


def log_of(pairs, **columns):
    users, items = zip(*pairs, strict=True)
    return Interactions.from_indices(users, items, **columns)


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def slow_k_core(pairs, k):
    pairs = list(pairs)
    while True:
        items_of, users_of = defaultdict(set), defaultdict(set)
        for user, item in pairs:
            items_of[user].add(item)
            users_of[item].add(user)
        left = [(u, i) for u, i in pairs if len(items_of[u]) >= k and len(users_of[i]) >= k]
        if left == pairs:
            return left
        pairs = left


@given(PAIRS, st.integers(1, 4))
def test_k_core_is_the_definition(pairs, k):
    expected = slow_k_core(pairs, k)
    if not expected:
        with pytest.raises(DataError, match=f"no {k}-core"):
            log_of(pairs).k_core(k)
        return
    core = log_of(pairs).k_core(k)
    assert raw_pairs(core) == expected
    assert core.user_ids.ids.to_pylist() == sorted({u for u, _ in expected})
    assert core.item_ids.ids.to_pylist() == sorted({i for _, i in expected})


def test_k_core_refuses_zero_and_keeps_titles_aligned():
    log = log_of([(0, 2), (0, 2), (1, 2)], item_titles=pa.array(["a", "b", "c"]))
    with pytest.raises(ConfigError, match="k_core=0"):
        log.k_core(0)
    assert log.k_core(1).item_titles.to_pylist() == ["c"]


@given(PAIRS, st.data())
def test_drop_duplicates_sums_weights_and_keeps_latest_time(pairs, data):
    times = data.draw(st.lists(st.integers(-50, 50), min_size=len(pairs), max_size=len(pairs)))
    weights = data.draw(st.lists(st.integers(0, 9), min_size=len(pairs), max_size=len(pairs)))
    log = log_of(pairs, times=np.array(times), weights=np.array(weights, dtype=np.float32))
    merged = log.drop_duplicates()
    total, latest = Counter(), {}
    for pair, time, weight in zip(pairs, times, weights, strict=True):
        total[pair] += weight
        latest[pair] = max(time, latest.get(pair, time))
    assert raw_pairs(merged) == list(dict.fromkeys(pairs))
    assert merged.weights.tolist() == [total[pair] for pair in raw_pairs(merged)]
    assert merged.times.tolist() == [latest[pair] for pair in raw_pairs(merged)]
    assert merged.num_items == log.num_items


def test_drop_duplicates_invents_no_weights():
    merged = log_of([(0, 0), (0, 0)]).drop_duplicates()
    assert len(merged) == 1
    assert merged.weights is None
    assert merged.times is None


def test_drop_duplicates_within_parts():
    weights, labels = np.array([1, 2, 3, 4], dtype=np.float32), np.array([0, 0, 1, 1], dtype=np.int8)
    merged = log_of([(0, 0), (0, 0), (1, 0), (0, 0)], weights=weights, labels=labels).drop_duplicates()
    assert raw_pairs(merged) == [(0, 0), (1, 0), (0, 0)]
    assert merged.weights.tolist() == [3, 3, 4]
    assert merged.labels.tolist() == [0, 1, 1]


def test_min_weight_keeps_the_border_and_drops_vanished_ids():
    log = log_of([(0, 0), (1, 1), (2, 1)], weights=np.array([3, 4, 5], dtype=np.float32))
    heavy = log.min_weight(4)
    assert raw_pairs(heavy) == [(1, 1), (2, 1)]
    assert heavy.user_ids.ids.to_pylist() == [1, 2]
    assert heavy.item_ids.ids.to_pylist() == [1]


def test_min_weight_errors():
    log = log_of([(0, 0)], weights=np.ones(1, dtype=np.float32))
    with pytest.raises(DataError, match="has no weights"):
        log_of([(0, 0)]).min_weight(1)
    with pytest.raises(DataError, match="at least 2"):
        log.min_weight(2)
    with pytest.raises(ConfigError, match="finite"):
        log.min_weight(float("nan"))


def test_arrow_round_trip_keeps_everything():
    table = pa.table(
        {
            "user": ["007", "a,b", "007"],
            "item": [5, 3, 5],
            "time": [1.5, 2.5, 0.5],
            "weight": pa.array([1, 2, 3], pa.float32()),
            "title": ["five", "three", "five"],
        }
    )
    log = Interactions.from_arrow(table)
    assert log.to_arrow().equals(table)
    assert Interactions.from_arrow(log.to_arrow()).fingerprint == log.fingerprint
    assert log.item_titles.to_pylist() == ["three", "five"]


def test_title_is_the_first_one_known():
    table = pa.table({"user": [1, 2, 3, 4], "item": [8, 8, 9, 8], "title": [None, "first", "", "second"]})
    assert Interactions.from_arrow(table).item_titles.to_pylist() == ["first", None]


def test_pandas_and_polars_frames():
    columns = {"uid": ["b", "a"], "iid": [1, 2], "ts": [10, 20]}
    by_pandas = Interactions.from_pandas(pd.DataFrame(columns))
    by_polars = Interactions.from_polars(pl.DataFrame(columns))
    assert by_pandas.fingerprint == by_polars.fingerprint
    assert raw_pairs(by_pandas) == [("b", 1), ("a", 2)]
    assert by_pandas.to_pandas()["time"].tolist() == [10, 20]


def test_pandas_categories_without_rows_are_no_ids():
    frame = pd.DataFrame({"user": pd.Categorical(["b", "a"], categories=["a", "b", "never"]), "item": [1, 2]})
    assert Interactions.from_pandas(frame).user_ids.ids.to_pylist() == ["a", "b"]


def test_pandas_dates_keep_their_order():
    frame = pd.DataFrame({"user": [1, 1], "item": [1, 2], "time": pd.to_datetime(["2020-01-02", "2020-01-01"])})
    assert Interactions.from_pandas(frame).times.tolist() == [1_577_923_200_000_000, 1_577_836_800_000_000]


def test_floats_without_fractions_are_integer_ids_and_gaps_are_refused():
    assert raw_pairs(Interactions.from_pandas(pd.DataFrame({"user": [1.0, 2.0], "item": [1, 2]}))) == [(1, 1), (2, 2)]
    with pytest.raises(DataError, match=r"row 2: the user id is missing \(column 'user', 1 such rows\)"):
        Interactions.from_pandas(pd.DataFrame({"user": [1.0, None], "item": [1, 2]}))
    with pytest.raises(DataError, match=r"'user' holds fractions"):
        Interactions.from_pandas(pd.DataFrame({"user": [1.5, 2.0], "item": [1, 2]}))


@pytest.mark.parametrize("read", [Interactions.of, Interactions.from_pandas, Items.from_pandas])
def test_frames_that_arrow_cannot_read_are_refused_in_one_line(read):
    with pytest.raises(DataError, match=r"frame cannot be read: .*'user', 'user'.*; give each column its own name"):
        read(pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]))
    with pytest.raises(DataError, match=r"frame cannot be read: .*column item.*one type$"):
        read(pd.DataFrame({"user": [1, 2], "item": ["a", 2]}))


def test_lists_are_no_ids():
    with pytest.raises(DataError, match="item column 'item' has type list"):
        Interactions.from_arrow(pa.table({"user": [1], "item": [[1, 2]]}))


def test_column_arguments_of_tables():
    table = pa.table({"a": [1], "b": [2], "rating": ["good"]})
    assert raw_pairs(Interactions.from_arrow(table, user="b", item="a", weight="")) == [(2, 1)]
    with pytest.raises(DataError, match=r"no user column: found columns 'a', 'b', 'rating'; .*--user-column"):
        Interactions.from_arrow(table)
    with pytest.raises(DataError, match=r"no column 'c': found columns 'a', 'b', 'rating'.*--item-column"):
        Interactions.from_arrow(table, user="a", item="c")
    with pytest.raises(ConfigError, match=r"users=\.\.\. is unknown"):
        Interactions.from_arrow(table, users="a")


def test_csr_values_are_weights():
    matrix = scipy.sparse.csr_matrix(np.array([[0, 2.5, 0], [1, 0, 0]]))
    log = Interactions.from_csr(matrix, user_ids=["x", "y"])
    assert raw_pairs(log) == [("x", 1), ("y", 0)]
    assert log.weights.tolist() == [2.5, 1]
    assert log.num_items == 3


def test_csr_drops_stored_zeros_and_adds_duplicates():
    matrix = scipy.sparse.coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    log = Interactions.from_csr(matrix)
    assert raw_pairs(log) == [(0, 1)]
    assert log.weights.tolist() == [3]


@pytest.mark.parametrize(
    ("ids", "words"), [(["x"], "1 user ids for a matrix with 2"), (["x", "x"], "must be distinct")]
)
def test_csr_with_wrong_ids(ids, words):
    with pytest.raises(DataError, match=words):
        Interactions.from_csr(scipy.sparse.eye_array(2).tocsr(), user_ids=ids)


def test_csr_with_infinite_value():
    with pytest.raises(DataError, match="not finite"):
        Interactions.from_csr(scipy.sparse.csr_array(np.array([[np.inf]])))


def test_repr_says_sizes_and_not_arrays():
    log = log_of([(0, 4)] * 3, weights=np.ones(3, dtype=np.float32), name="clicks")
    assert repr(log) == "Interactions(clicks: 3 interactions, 1 users x 5 items, weights)"


def test_split_names_parts_and_shares_maps():
    parts = log_of([(u, i) for u in range(5) for i in range(4)], name="x").split(seed=3)
    assert [part.name for part in parts] == ["x/train", "x/valid", "x/test"]
    assert [len(part) for part in parts] == [14, 2, 4]
    assert all(part.user_ids is parts.train.user_ids and part.item_ids is parts.train.item_ids for part in parts)


def test_fingerprint_of_parts_tells_splits_apart():
    log = log_of([(u, i) for u in range(5) for i in range(4)])
    assert log.split(seed=1).fingerprint == log.split(seed=1).fingerprint
    assert log.split(seed=1).fingerprint != log.split(seed=2).fingerprint


def test_arrays_are_read_only_and_checked():
    log = log_of([(0, 1)])
    with pytest.raises(ValueError, match="read-only"):
        log.users[0] = 1
    with pytest.raises(DataError, match=r"item indices must lie in 0\.\.0; found 1\.\.1"):
        Interactions.from_indices([0], [1], num_items=1)
    with pytest.raises(DataError, match="times has 2 rows where users has 1"):
        Interactions.from_indices([0], [0], times=np.array([1, 2]))


def test_the_parts_of_a_log_together_are_the_log_with_its_labels():
    log = Interactions.from_indices(range(20), range(20), 20, 20, times=np.arange(20), name="log")
    parts = log.split(seed=3)
    whole = parts.whole
    assert sorted(zip(whole.users.tolist(), whole.times.tolist(), strict=True)) == [(n, n) for n in range(20)]
    assert whole.name == "log"
    for label, part in enumerate(parts):
        assert whole.rows(whole.labels == label).users.tolist() == part.users.tolist()
    again = Parts.of(whole, whole.labels)
    assert again.fingerprint == parts.fingerprint
