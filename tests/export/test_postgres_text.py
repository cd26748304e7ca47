"""Values as PostgreSQL text: ids of every type, and COPY, where any string comes back and a line is always one row."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rankformer.errors import DataError
from rankformer.export import postgres_text
from rankformer.export.contents import VectorTable
from rankformer.export.postgres_text import (
    escape,
    format_ids,
    format_rows,
    format_vectors,
    parse_id,
    parse_vectors,
    sql_type_of,
    unescape,
)

from .conftest import ODD_TEXTS

STRINGS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
# Ids of every kind beside their column type and the Python values that PostgreSQL should hand back.
KINDS = {
    "strings": (pa.array(ODD_TEXTS), "text", ODD_TEXTS),
    "large strings": (pa.array(["b", "a"], pa.large_string()), "text", ["b", "a"]),
    "booleans": (pa.array([True, False]), "boolean", [True, False]),
    "bytes of 8 bits": (pa.array([255, 0], pa.uint8()), "smallint", [255, 0]),
    "integers of 16 bits": (pa.array([-(2**15), 2**15 - 1], pa.int16()), "smallint", [-(2**15), 2**15 - 1]),
    "unsigned 16 bits": (pa.array([2**16 - 1, 0], pa.uint16()), "integer", [2**16 - 1, 0]),
    "unsigned 32 bits": (pa.array([2**32 - 1, 0], pa.uint32()), "bigint", [2**32 - 1, 0]),
    "integers": (pa.array([2**63 - 1, -(2**63), 0]), "bigint", [2**63 - 1, -(2**63), 0]),
    "unsigned 64 bits": (pa.array([2**64 - 1, 0], pa.uint64()), "numeric", [Decimal(2**64 - 1), Decimal(0)]),
    "numbers": (pa.array([0.1, -1e300, 5e-324]), "double precision", [0.1, -1e300, 5e-324]),
    "numbers of 32 bits": (pa.array([0.1, 2.5], pa.float32()), "real", [0.1, 2.5]),
    "decimals": (pa.array([Decimal("0.25"), Decimal("-10.00")]), "numeric", [Decimal("0.25"), Decimal("-10.00")]),
    "days": (pa.array([date(2024, 2, 29), date(1, 1, 1)]), "date", [date(2024, 2, 29), date(1, 1, 1)]),
    "days in milliseconds": (pa.array([date(2024, 2, 29)], pa.date64()), "date", [date(2024, 2, 29)]),
    "times of day": (pa.array([time(23, 59, 59)], pa.time32("s")), "time", [time(23, 59, 59)]),
    "seconds": (pa.array([1_700_000_000], pa.timestamp("s")), "timestamp", [datetime(2023, 11, 14, 22, 13, 20)]),
    "nanoseconds": (pa.array([1_000], pa.timestamp("ns")), "timestamp", [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    "instants": (
        pa.array([0, 1_720_000_000_000], pa.timestamp("ms", tz="Europe/Paris")),
        "timestamptz",
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 7, 3, 9, 46, 40, tzinfo=UTC)],
    ),
    "raw bytes": (pa.array([b"\x00\xff", b"", b"\\x"]), "bytea", [b"\x00\xff", b"", b"\\x"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_formatted_id_is_read_as_the_value(kind):
    ids, sql_type, values = KINDS[kind]
    assert sql_type_of(ids.type) == sql_type
    read = [parse_id(text, sql_type) for text in format_ids(ids).to_pylist()]
    assert read == values
    assert pa.array(read).cast(ids.type).equals(ids)


def test_what_is_finer_than_microseconds_is_refused():
    for kind in (pa.timestamp("ns"), pa.time64("ns")):
        with pytest.raises(DataError, match="finer than PostgreSQL's microseconds"):
            format_ids(pa.array([1], kind))


def test_a_type_without_a_column_is_refused():
    with pytest.raises(DataError, match=r"duration\[s\] have no PostgreSQL type here; export to parquet"):
        sql_type_of(pa.duration("s"))


@given(st.lists(st.one_of(st.none(), STRINGS, st.text("\\ntrN.\t\n\r"))))
def test_any_string_comes_back(strings):
    escaped = escape(pa.array(strings, pa.string()), "title").to_pylist()
    assert [unescape(field) for field in escaped] == strings
    assert not any(set("\t\n\r") & set(field) for field in escaped)


def test_escapes_are_those_of_postgresql():
    given = pa.array(["a\tb", "a\nb", "a\rb", "a\\b", "\\N", None])
    assert escape(given, "id").to_pylist() == ["a\\tb", "a\\nb", "a\\rb", "a\\\\b", "\\\\N", "\\N"]


def test_a_nul_is_refused_by_name():
    with pytest.raises(DataError, match=r"the title 'a\\x00b' holds a NUL"):
        escape(pa.array(["fine", None, "a\0b"]), "title")


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=FINITE))
def test_every_number_comes_back_exactly(vectors):
    fields = format_vectors(vectors).to_pylist()
    assert all(field[0] + field[-1] == "[]" for field in fields)
    assert np.array_equal(parse_vectors(fields, vectors.shape[1]), vectors)


def test_rows_are_the_same_however_they_are_batched(monkeypatch):
    table = VectorTable(pa.array(range(7)), np.arange(14, dtype=np.float32).reshape(7, 2), pa.array(list("abcdefg")))
    whole = "".join(format_rows(table))
    assert whole.splitlines()[3] == "3\td\t[6,7]"
    monkeypatch.setattr(postgres_text, "_NUMBERS_AT_ONCE", 5)
    parts = list(format_rows(table))
    assert len(parts) == 4
    assert "".join(parts) == whole
