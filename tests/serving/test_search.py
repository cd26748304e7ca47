import numpy as np
import pyarrow as pa
import pytest

from rankformer.serving.ids import IdIndex

IDS = pa.array(["b-1", "a-1", "ab-2", "x"], pa.large_string())
TITLES = pa.array(["Über Wasser", None, "Apfel (b-1)", "ÜBER alles"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [2, 0, 3, 1]),
        ("b-1", [0, 2]),
        ("A", [2, 1, 0, 3]),  # ab-2 and a-1 begin with it, the titles of the others contain it
        ("über", [0, 3]),
        ("%", []),
        (".*", []),
    ],
)
def test_popular_first_and_beginnings_before_the_rest(query, found):
    index = IdIndex(IDS, np.array([5, 1, 9, 5]), TITLES, popular_first=True)
    assert index.search(query, 10) == found
    assert index.search(query, 1) == found[:1]


def test_the_order_of_the_index():
    index = IdIndex(IDS, np.array([5, 1, 9, 5]))
    assert index.search("", 3) == [0, 1, 2]
    assert index.search("1", 3) == [0, 1]


def test_nothing_to_find():
    assert IdIndex(IDS[:0], np.zeros(0, dtype=np.int64), popular_first=True).search("a", 5) == []
