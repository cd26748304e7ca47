"""Lists written back to a real PostgreSQL."""

import psycopg
import pyarrow as pa
import pytest

from rankformer.cli.main import run as command
from rankformer.errors import ConfigError, DataError
from rankformer.export.lists import write_lists

TESTED = {"PostgreSQL (recommend --to)": ("target", "psycopg", "postgresql")}

LISTS = pa.table(
    {
        "user_id": ["ann", "o'b\\ob\t"],
        "item_id": pa.array([7, 2**60]),
        "score": pa.array([0.5, -1.25], pa.float32()),
        "rank": pa.array([1, 2], pa.int32()),
        "title": pa.array(["Tea; DROP TABLE lists; --", None]),
    }
)


@pytest.fixture
def server(postgres):
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create schema if not exists shop")
        yield connection
        connection.execute("drop schema shop cascade")


def rows(connection):
    return connection.execute("select * from shop.lists order by rank").fetchall()


def test_rows_come_back_as_they_were(server, postgres):
    write_lists(LISTS, postgres.url, "shop.lists")
    assert rows(server) == [tuple(row.values()) for row in LISTS.to_pylist()]


def test_rows_are_replaced_only_when_asked_for(server, postgres):
    write_lists(LISTS, postgres.url, "shop.lists")
    with pytest.raises(ConfigError, match=r"the table shop\.lists has rows; replace them with --overwrite"):
        write_lists(LISTS, postgres.url, "shop.lists")
    assert len(rows(server)) == 2
    write_lists(LISTS.slice(1), postgres.url, "shop.lists", overwrite=True)
    assert len(rows(server)) == 1


def test_a_failure_leaves_the_old_rows(server, postgres):
    write_lists(LISTS, postgres.url, "shop.lists")
    bad = LISTS.set_column(4, "title", pa.array(["fine", "a\0b"]))
    with pytest.raises(DataError, match="NUL"):
        write_lists(bad, postgres.url, "shop.lists", overwrite=True)
    server.execute("alter table shop.lists add check (rank < 9)")
    late = LISTS.set_column(3, "rank", pa.array([1, 9], pa.int32()))
    with pytest.raises(ConfigError, match=r"shop\.lists was not written: .*check constraint") as caught:
        write_lists(late, postgres.url, "shop.lists", overwrite=True)
    assert postgres.password not in str(caught.value)
    assert rows(server) == [tuple(row.values()) for row in LISTS.to_pylist()]


def test_names_and_addresses_are_checked(tmp_path):
    for table in ("a b", 'a"; drop table x; --', "", "a.b.c"):
        with pytest.raises(ConfigError, match="expected letters, digits and _"):
            write_lists(LISTS, "postgresql://ann@db/shop", table)
    with pytest.raises(ConfigError, match=r"--to mysql://x: expected postgresql://"):
        write_lists(LISTS, "mysql://x", "lists")


def test_recommend_writes_to_a_table(server, postgres, saved, capsys):
    words = ["recommend", str(saved()), "--all", "-k", "3", "--to", postgres.url]
    assert command(words) == 2
    assert "--to URL and --table NAME belong together" in capsys.readouterr().err
    assert command([*words, "--table", "shop.lists"]) == 0
    shown = capsys.readouterr()
    assert "wrote 390 rows to the table shop.lists" in shown.out
    assert postgres.password not in shown.out + shown.err
    assert server.execute("select count(*), max(rank) from shop.lists").fetchone() == (390, 3)
    assert command([*words, "--table", "shop.lists"]) == 2
