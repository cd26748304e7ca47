"""What the targets share."""

import numpy as np
import pyarrow as pa
import pytest

from rankformer.errors import ConfigError, extra_module
from rankformer.export.contents import Tables, VectorTable
from rankformer.export.targets import search_by_product


@pytest.mark.parametrize("k", [1, 7, 30])
def test_the_product_search_equals_a_full_sort(k):
    rng = np.random.default_rng(k)
    vectors = [rng.normal(size=(size, 5)).astype(np.float32) for size in (9, 30)]
    tables = Tables(*(VectorTable(pa.array(range(len(rows))), rows) for rows in vectors))
    users = np.array([8, 0, 3])
    expected = np.argsort(-(vectors[0][users] @ vectors[1].T), axis=1)[:, :k]
    assert np.array_equal(search_by_product(tables, users, k), expected)


def test_a_missing_extra_is_named():
    with pytest.raises(ConfigError, match=r"needs no_such_module.*rankformer\[faiss\]"):
        extra_module("no_such_module", "faiss")
