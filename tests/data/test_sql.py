"""Interactions out of real databases: DuckDB, SQLite and a PostgreSQL server."""

import json
import logging
import sqlite3
import subprocess
import sys

import pytest
from tests.conftest import needed

from rankformer.data import DataSource, Interactions
from rankformer.data.readers.sql import redact, without_secrets
from rankformer.errors import ConfigError, DataError

TESTED = {
    "DuckDB, SQLite and Parquet files": ("source", "duckdb", "duckdb sqlite"),
    "PostgreSQL": ("source", "psycopg", "postgresql"),
}
ROWS = [("ann", 7, "2024-01-01 10:00:00", 1.5), ("bo'b", 8, "2024-01-02 00:00:00", 2.0), ("ann", 9, "2024-02-01", 3.0)]
EXPECTED = [("ann", 7), ("bo'b", 8), ("ann", 9)]
MICROSECONDS = [1_704_103_200_000_000, 1_704_153_600_000_000, 1_706_745_600_000_000]


def raw_pairs(log):
    table = log.to_arrow()
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.fixture
def sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute('create table "the clicks" (user_id text, item_id integer, ts text, w real, note text)')
        connection.executemany('insert into "the clicks" values (?, ?, ?, ?, null)', ROWS)
    connection.close()
    return f"sqlite:{tmp_path / 'shop.db'}"


@pytest.fixture
def duckdb(tmp_path):
    needed("duckdb")
    import duckdb

    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute('create table "the clicks" (user_id text, item_id bigint, ts timestamp, w float, note text)')
        connection.executemany('insert into "the clicks" values (?, ?, ?, ?, null)', ROWS)
    return f"duckdb:{tmp_path / 'shop.duckdb'}"


@pytest.fixture
def postgresql(postgres):
    import psycopg

    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            'create table "the clicks" (user_id text, item_id bigint, ts timestamptz, w numeric, note text)'
        )
        connection.execute("set timezone = 'UTC'")
        connection.cursor().executemany('insert into "the clicks" values (%s, %s, %s, %s, null)', ROWS)
        yield postgres.url
        connection.execute('drop table if exists "the clicks"')


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def database(request):
    return request.getfixturevalue(request.param)


def test_a_table_is_read_by_known_names(database):
    log = Interactions.read(database, table="the clicks", weight="w")
    assert raw_pairs(log) == EXPECTED
    assert log.times.tolist() == MICROSECONDS
    assert log.weights.tolist() == [1.5, 2.0, 3.0]


WRITING = {
    "sqlite": ["vacuum into '{}'", "attach '{}' as x", "pragma journal_mode = wal", "select 1; select 2"],
    "duckdb": [
        "copy (select 1) to '{}'",
        "export database '{}'",
        "select 1; copy (select 1) to '{}'",
        "install httpfs",
    ],
    "postgresql": ["select 1) as x; commit; create table made (a int); --", "select 1; select 2", "vacuum"],
}


@pytest.mark.parametrize(("kind", "query"), [(kind, query) for kind, queries in WRITING.items() for query in queries])
def test_a_query_can_only_read(request, tmp_path, kind, query):
    """A run folder says which query its data came from, and `evaluate` asks it again: it must not write."""
    address = request.getfixturevalue(kind)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DataError):
        Interactions.read(address, query=query.format(tmp_path / "made"))
    assert sorted(tmp_path.iterdir()) == before
    if kind == "postgresql":
        with pytest.raises(DataError, match="made"):
            Interactions.read(address, query="select * from made")


def test_events_have_their_weights(database):
    query = """select user_id, item_id, case when w > 1.8 then 'cart' else 'view' end as kind from "the clicks" """
    options = {"query": query, "event": "kind"}
    assert Interactions.read(database, **options, event_weights={"view": 1, "cart": 3}).weights.tolist() == [1, 3, 3]
    source = DataSource(source=database, **options, event_weights={"view": 0, "cart": 3})
    assert raw_pairs(source.load_log()) == EXPECTED[1:]
    assert DataSource(**source.model_dump(mode="json")).load_log().fingerprint == source.load_log().fingerprint
    with pytest.raises(DataError, match="no weight for 'cart' in column 'kind'"):
        Interactions.read(database, **options, event_weights={"view": 1})


def test_a_table_with_events_is_read(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table log (user_id text, item_id integer, kind text, rating integer)")
        connection.executemany("insert into log values (?, ?, ?, 7)", [("ann", 1, "view"), ("bob", 2, "cart")])
    connection.close()
    weights = {"view": 1, "cart": 3}
    log = Interactions.read(f"sqlite:{tmp_path / 'shop.db'}", table="log", event="kind", event_weights=weights)
    assert log.weights.tolist() == [1, 3]


def test_a_query_is_read(database):
    query = 'select user_id as a, item_id as b from "the clicks" where w > 1.6 order by w;'
    assert raw_pairs(Interactions.read(database, query=query, user="a", item="b")) == EXPECTED[1:]


def test_a_source_splits_and_replays_from_its_settings(database):
    source = DataSource(source=database, table="the clicks", parts=(0.4, 0.3, 0.3))
    parts = source.load()
    stored = json.dumps(source.absolute().model_dump(mode="json"))
    assert DataSource(**json.loads(stored)).load().fingerprint == parts.fingerprint
    assert source.name == "the clicks"
    assert source.is_there


@pytest.mark.parametrize(
    ("options", "problem", "words"),
    [
        ({}, ConfigError, r"say what to read with --table \(found: .*the clicks.*\) or --query"),
        ({"query": "select 1", "table": "x"}, ConfigError, "query and table cannot be given together"),
        ({"table": "nothing"}, DataError, "nothing"),
        ({"query": "selekt 1"}, DataError, "syntax error"),
        ({"query": 'select user_id, item_id from "the clicks" where w > 9'}, DataError, "selects no rows"),
        ({"query": 'select w, w, item_id from "the clicks"'}, DataError, "two columns 'w'"),
        (
            {"query": 'select w as a, item_id from "the clicks"'},
            DataError,
            "no user column: found columns 'a', 'item_id'",
        ),
        ({"query": 'select user_id, null as item from "the clicks"'}, DataError, "row 1: the item id is missing"),
        ({"table": "the clicks", "max_rows": 2}, DataError, "more than 2 rows; raise the limit with --max-rows"),
    ],
)
def test_mistakes_are_one_line(database, options, problem, words):
    with pytest.raises(problem, match=words) as caught:
        Interactions.read(database, **options)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_query_cannot_change_the_data(database):
    for statement in ('delete from "the clicks"', "create table other (a int)"):
        with pytest.raises(DataError):
            Interactions.read(database, query=statement)
    assert len(Interactions.read(database, table="the clicks")) == 3


def test_rows_without_ids_can_be_left_out(database, caplog):
    query = """select case when w > 2.5 then null else user_id end as user_id, item_id from "the clicks" """
    with caplog.at_level(logging.WARNING):
        assert raw_pairs(Interactions.read(database, query=query, on_bad_row="skip")) == EXPECTED[:2]
    assert "skipped 1 of 3 rows (1 without a user id)" in caplog.text


def test_files_that_are_no_databases(tmp_path):
    for kind in ("sqlite", "duckdb"):
        with pytest.raises(DataError, match="is not a file"):
            Interactions.read(f"{kind}:{tmp_path / 'none.db'}", table="x")
        (tmp_path / "text.db").write_text("no database\n" * 500)
        with pytest.raises(DataError, match=r"text\.db: .*database"):
            Interactions.read(f"{kind}:{tmp_path / 'text.db'}", table="x")
    with pytest.raises(ConfigError, match=r"table=\.\.\. is for databases, and .*a\.csv is none"):
        Interactions.read(tmp_path / "a.csv", table="x")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:pass@db/shop", "postgresql://ann@db/shop"),
        ("postgresql://ann:p@ss/w#rd@db/shop", "postgresql://ann@db/shop"),
        ("postgresql://db/shop?password=pass&user=ann", "postgresql://db/shop?user=ann"),
        ("postgresql://db/shop?user=ann&password=pass", "postgresql://db/shop?user=ann"),
        ("s3://bucket/a.parquet?s3_secret_access_key=pass", "s3://bucket/a.parquet"),
        ("https://host/a.parquet?X-Amz-Signature=pass&v=1", "https://host/a.parquet?v=1"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("duckdb:a:b@c.db", "duckdb:a:b@c.db"),
        ("clicks.csv", "clicks.csv"),
    ],
)
def test_secrets_are_taken_out_of_addresses(address, shown):
    assert redact(address) == shown
    source = DataSource(source=address)
    assert source.source == shown
    for text in (repr(source), source.model_dump_json(), str(source.absolute().model_dump()), source.name):
        assert "pass" not in text
        assert "p@ss" not in text
    assert source.model_copy(update={"k_core": 2})._address == address


def test_secrets_are_taken_out_of_errors():
    text = without_secrets('cannot reach "ss/w#rd@db"\nnor p@ss/w#rd', "postgresql://ann:p@ss/w#rd@db/shop")
    assert text == 'cannot reach "***@db" nor ***'


def test_a_server_that_is_not_there(tmp_path):
    needed("psycopg")
    source = DataSource(source=f"postgresql://ann:s3cret-word@/shop?host={tmp_path}", table="x")
    with pytest.raises(
        DataError, match=r"postgresql://ann@/shop\?host=.*: connection .* failed: No such file"
    ) as caught:
        source.load()
    assert "s3cret" not in str(caught.value)


def test_object_storage_needs_an_extension_that_is_not_here():
    """Nothing can be reached from here: the address gets as far as DuckDB's extension for it, without its secret."""
    needed("duckdb")
    with pytest.raises(DataError, match=r"s3://bucket/\*\.parquet: .*") as caught:
        Interactions.read("s3://bucket/*.parquet?s3_secret_access_key=s3cret")
    assert "s3cret" not in str(caught.value)


MEASURED = """
import sys
from rankformer.data import Interactions
import pyarrow.csv
def status(field):
    return next(int(line.split()[1]) / 1e3 for line in open("/proc/self/status") if line.startswith(field))
before = status("VmRSS")
log = Interactions.read(sys.argv[1], query=sys.argv[2], weight="w")
print(len(log), log.num_users, log.num_items, status("VmHWM") - before)
"""
# 37 letters an id, as UUIDs have: 800 MB of strings in 10 million rows.
MILLIONS = {
    "duckdb": "select printf('u%036d', (range * 7919) % 200000) as user_id, "
    "printf('i%036d', (range * 104729) % 50000) as item_id, range as ts, 1.5 as w from range(10000000)",
    "postgresql": "select 'u' || lpad(((n * 7919) % 200000)::text, 36, '0') as user_id, "
    "'i' || lpad(((n * 104729) % 50000)::text, 36, '0') as item_id, n as ts, 1.5 as w "
    "from generate_series(0::bigint, 9999999) as n",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", MILLIONS)
def test_ten_million_rows_are_read_in_bounded_memory(request, kind):
    """Measured: 500 to 780 MB for ten million rows, of which the log itself takes 200; held as strings, 1.8 GB."""
    database = request.getfixturevalue(kind)
    command = [sys.executable, "-c", MEASURED, database, MILLIONS[kind]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    *sizes, megabytes = map(float, done.stdout.split())
    assert sizes == [10_000_000, 200_000, 50_000]
    assert megabytes < 1000
