"""Ids as SQL values."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from rankformer.errors import DataError
from rankformer.export.sql_ids import PARSERS, spell, sql_type_of

from .conftest import ODD_TEXTS

# Ids of every kind beside their column type and the Python values that PostgreSQL should hand back.
KINDS = {
    "texts": (pa.array(ODD_TEXTS), "text", ODD_TEXTS),
    "large texts": (pa.array(["b", "a"], pa.large_string()), "text", ["b", "a"]),
    "truths": (pa.array([True, False]), "boolean", [True, False]),
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
def test_a_spelling_is_read_as_the_value(kind):
    ids, sql_type, values = KINDS[kind]
    assert sql_type_of(ids.type) == sql_type
    read = [PARSERS[sql_type](text) for text in spell(ids).to_pylist()]
    assert read == values
    assert pa.array(read).cast(ids.type).equals(ids)


def test_what_is_finer_than_microseconds_is_refused():
    for kind in (pa.timestamp("ns"), pa.time64("ns")):
        with pytest.raises(DataError, match="finer than PostgreSQL's microseconds"):
            spell(pa.array([1], kind))


def test_a_type_without_a_column_is_refused():
    with pytest.raises(DataError, match=r"duration\[s\] have no PostgreSQL type here; export to parquet"):
        sql_type_of(pa.duration("s"))
