import numpy as np
import pyarrow as pa
import pytest

from rankformer.data.id_map import IdMap
from rankformer.errors import DataError


def test_encode_sorts_and_indexes():
    ids, index = IdMap.encode(pa.chunked_array([["b", "a"], ["c", "a"]]))
    assert ids.ids.to_pylist() == ["a", "b", "c"]
    assert index.tolist() == [1, 0, 2, 0]
    assert index.dtype == np.int32


def test_encode_of_nothing():
    ids, index = IdMap.encode(pa.chunked_array([], type=pa.string()))
    assert len(ids) == 0
    assert len(index) == 0


def test_encode_names_the_row_without_id():
    with pytest.raises(DataError, match="row 2 has no id"):
        IdMap.encode(pa.array(["a", None]))


@pytest.mark.parametrize(
    ("ids", "words"), [(["a", None], "must not be missing"), (["a", "b", "a"], "must be distinct")]
)
def test_refuses_ids_that_cannot_be_a_map(ids, words):
    with pytest.raises(DataError, match=words):
        IdMap(pa.array(ids))


def test_lookup_of_known_unknown_and_wrong_type():
    ids = IdMap(pa.array([10, 20, 30]))
    assert ids.index_of([30, 99, 10]).tolist() == [2, -1, 0]
    assert ids.index_of(["30", 20]).tolist() == [-1, 1]
    assert ids.parse("20") == 20
    assert ids.parse("x") == "x"


def test_repr_is_short():
    assert repr(IdMap.dense(100_000)) == "IdMap(100,000 ids of type int64: 0, 1, 2, ...)"
    assert repr(IdMap(pa.array(["é"]))) == "IdMap(1 ids of type string: 'é')"


def test_fingerprint_tells_type_and_order():
    prints = {IdMap(pa.array(ids)).fingerprint for ids in (["1", "2"], ["2", "1"], [1, 2])}
    assert len(prints) == 3
    sliced = IdMap(pa.array(["0", "1", "2"])[1:])
    assert sliced.fingerprint == IdMap(pa.array(["1", "2"])).fingerprint
