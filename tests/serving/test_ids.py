"""Raw ids of any type: out as JSON and as part of a URL, and back to the same index."""

import datetime
from decimal import Decimal

import jsonschema_rs
import numpy as np
import pyarrow as pa
import pytest

from rankformer.serving.ids import IdIndex


def codec(ids):
    return IdIndex(ids, np.zeros(len(ids), dtype=np.int64))


COLUMNS = {
    "strings": pa.array(["a/b", "", "ü☃", "%2F", "7", "nul\0"]),
    "large strings": pa.array(["x", "y"], pa.large_string()),
    "dictionary": pa.array(["x", "y", "z"]).dictionary_encode(),
    "integers": pa.array([0, -5, 2**63 - 1], pa.int64()),
    "small integers": pa.array([1, -2], pa.int8()),
    "unsigned": pa.array([1, 2**64 - 1], pa.uint64()),
    "floats": pa.array([0.5, -1e300, 3.0]),
    "single-precision floats": pa.array([0.1, 2.0], pa.float32()),
    "booleans": pa.array([True, False]),
    "dates": pa.array([datetime.date(2024, 2, 29), datetime.date(1999, 1, 1)]),
    "times": pa.array([datetime.datetime(2024, 2, 29, 12, 30), datetime.datetime(1999, 1, 1)], pa.timestamp("us")),
    "decimals": pa.array([Decimal("1.50"), Decimal("-2.25")]),
    "bytes": pa.array([b"abc", "é".encode()]),
    "bytes that are not UTF-8": pa.array([b"\xff\x00", b"abc"]),
    "fixed bytes": pa.array([b"0123", b"4567"], pa.binary(4)),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_every_id_finds_itself_again(column):
    ids = codec(column)
    assert len(ids) == len(column)
    assert [ids.find(value) for value in ids.values] == list(range(len(column)))
    assert [ids.find_text(text) for text in map(str, ids.values)] == list(range(len(column)))


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("text", ["nobody", "", "-", "1e999", "nan", "１", "1_0", "\ud800", "9" * 5000])
def test_other_strings_find_nothing(column, text):
    if text not in map(str, codec(column).values):
        assert codec(column).find_text(text) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("integers", 0.0),
        ("integers", False),
        ("integers", "0"),
        ("integers", 10**400),
        ("strings", 7),
        ("booleans", 1),
        ("floats", True),
        ("floats", "0.5"),
        ("floats", 10**400),
        ("dates", 0),
        ("bytes", b"abc"),
    ],
)
def test_a_value_of_another_type_is_another_id(column, value):
    assert codec(COLUMNS[column]).find(value) is None


def test_other_spellings():
    assert codec(COLUMNS["integers"]).find_text("-05") == 1
    assert codec(COLUMNS["floats"]).find(3) == 2
    assert codec(COLUMNS["floats"]).find_text("5e-1") == 0
    assert codec(COLUMNS["times"]).find_text("2024-02-29T12:30:00") == 0


def test_bytes_that_are_not_utf8_become_hexadecimal():
    assert codec(COLUMNS["bytes that are not UTF-8"]).values == ["ff00", "616263"]
    assert codec(COLUMNS["bytes"]).values == ["abc", "é"]


def test_numbers_that_json_lacks_become_strings():
    ids = codec(pa.array([1.5, float("inf")]))
    assert ids.values == [1.5, "inf"]


VALUES = [
    *("", "x", "7", "x" * 1000, "x" * 1001, "2024-02-29", "2024-02-29 12:30:00", "1.25"),
    *(0, -1, 127, 128, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400, 0.5, -1e300, 2.0**60, True, False, None),
]


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_the_description_admits_what_is_accepted_and_nothing_else(column):
    ids = codec(column)
    schema, checked = ids.json_schema, 0
    for value in VALUES:
        if "format" in schema and isinstance(value, str):  # whether it is of that type only Arrow can say
            continue
        if schema.get("type") == "integer" and isinstance(value, float):  # JSON Schema has no word for "not 1.0"
            continue
        admitted = jsonschema_rs.is_valid(schema, value)
        assert not admitted or ids.accepted(value) is not None, value
        outside = isinstance(value, str) and len(value) > 1000  # refused by its length before
        outside |= isinstance(value, float) and abs(value) > 2**53  # accepted, though not promised
        assert outside or admitted == (ids.accepted(value) is not None), value
        checked += admitted
    assert checked or schema == {"not": {}} or "format" in schema
    assert "format" not in schema or schema["format"] == str(column.type)
