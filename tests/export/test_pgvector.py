"""The SQL stream: its shape here, its life in a real PostgreSQL with the extension."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.errors import ConfigError, DataError
from rankformer.export.contents import read_contents
from rankformer.export.exporter import export_run
from rankformer.export.pgvector import PgVector, statements
from rankformer.export.self_test import count_ties

from .conftest import ITEMS, USERS, make_run, odd_items
from .test_sql_ids import KINDS


def stream_of(run, tmp_path, prefix="rankformer_"):
    export_run(run, PgVector(prefix), tmp_path / "out.sql", overwrite=True)
    return tmp_path / "out.sql"


@pytest.mark.parametrize("prefix", ["", "1a_", "A_", "a-b", "a b", 'a"', "a;", "ä", "a\n", "public.a_", "a" * 41])
def test_prefixes_that_are_refused(prefix):
    with pytest.raises(ConfigError, match="lower-case letters, digits and _"):
        PgVector(prefix)


def test_names_stay_within_what_postgresql_keeps(saved, tmp_path):
    text = stream_of(saved(), tmp_path, "a" * 40).read_text()
    name = text.split("CREATE INDEX ")[1].split()[0]
    assert len(name) <= 63


@pytest.mark.parametrize(("width", "indexed"), [(2000, True), (2001, False)])
def test_the_index_ends_where_pgvector_ends(saved, tmp_path, width, indexed):
    vectors = [torch.ones(2, width), torch.ones(2, width)]
    run = saved(user_ids=pa.array([1, 2]), item_ids=pa.array([1, 2]), vectors=vectors)
    assert ("CREATE INDEX" in stream_of(run, tmp_path).read_text()) == indexed


def test_vectors_that_are_too_wide(saved, tmp_path):
    vectors = [torch.ones(1, 16_001), torch.ones(1, 16_001)]
    run = saved(user_ids=pa.array([1]), item_ids=pa.array([1]), vectors=vectors)
    with pytest.raises(DataError, match="at most 16000"):
        stream_of(run, tmp_path)


def test_statements_are_told_from_data(saved, tmp_path):
    ids, titles = odd_items()
    with open(stream_of(saved(item_ids=ids, titles=titles), tmp_path), encoding="utf-8", newline="\n") as stream:
        found = [(sql.split()[0], len(list(data))) for sql, data in statements(stream)]
    words = [word for word, _ in found if word != "SET"]
    expected = "BEGIN; CREATE CREATE COPY CREATE COPY CREATE COMMENT COMMENT COMMIT;"
    assert " ".join(words) == expected
    assert [count for word, count in found if word == "COPY"] == [USERS, ITEMS]
    assert not any(count for word, count in found if word != "COPY")


class TestLoaded:
    """The stream goes through the real psql into a real server."""

    @pytest.fixture
    def load(self, postgres, saved, tmp_path):
        psycopg = pytest.importorskip("psycopg")
        postgres.psql("-c", "DROP TABLE IF EXISTS rankformer_users, rankformer_items")
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:

            def load(**changes):
                run = saved(**changes)
                with open(stream_of(run, tmp_path), "rb") as stream:
                    done = postgres.psql(stdin=stream)
                assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
                return run, connection

            yield load

    @pytest.mark.parametrize("kind", KINDS)
    def test_ids_of_every_kind_are_values_of_their_type(self, load, kind):
        ids, sql_type, values = KINDS[kind]
        _, connection = load(user_ids=ids, item_ids=ids)
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        for table in ("rankformer_users", "rankformer_items"):
            rows = connection.execute(f"SELECT id, pg_typeof(id)::text, embedding::text FROM {table}").fetchall()
            assert [row[0] for row in rows] == values
            full_name = {"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone"}
            assert rows[0][1] == full_name.get(sql_type, "time without time zone" if sql_type == "time" else sql_type)

    def test_titles_numbers_and_the_card(self, load):
        ids, titles = odd_items()
        run, connection = load(item_ids=ids, titles=titles)
        rows = connection.execute("SELECT id, title, embedding::text FROM rankformer_items").fetchall()
        assert [row[0] for row in rows] == ids.to_pylist()
        assert [row[1] for row in rows] == titles.to_pylist()
        vectors = np.array([json.loads(row[2]) for row in rows], dtype=np.float32)
        assert np.array_equal(vectors, make_run(item_ids=ids).recommender.scorer.items.numpy())
        for table in ("rankformer_users", "rankformer_items"):
            comment = connection.execute(f"SELECT obj_description('{table}'::regclass)").fetchone()[0]
            assert json.loads(comment) == {**read_contents(run).card, "to": "pgvector"}

    def test_extreme_numbers(self, load):
        numbers = torch.tensor([[1e-45, 3.4028235e38, -0.0, 1.1754944e-38, 0.1]])
        _, connection = load(user_ids=pa.array([1]), item_ids=pa.array([1]), vectors=[numbers * 0, numbers])
        text = connection.execute("SELECT embedding::text FROM rankformer_items").fetchone()[0]
        assert np.array_equal(np.array(json.loads(text), dtype=np.float32), numbers[0].numpy())

    def test_its_best_items_are_ours(self, load):
        item_ids = pa.array([f"item-{number}" for number in range(1_000)])
        run = make_run(item_ids=item_ids)
        _, connection = load(item_ids=item_ids)
        recommender, users = run.recommender, np.arange(100)
        own = recommender.recommend(users.tolist(), 20, include_seen=True).table["item_id"].to_pylist()
        query = """SELECT id FROM rankformer_items
                   ORDER BY embedding <#> (SELECT embedding FROM rankformer_users WHERE id = %s) LIMIT 20"""

        def found():
            return [row[0] for user in users.tolist() for row in connection.execute(query, (user,))]

        connection.execute("SET enable_indexscan = off")
        lists = [recommender.item_ids.index_of(ids).reshape(100, 20) for ids in (own, found())]
        assert count_ties(recommender.scorer, users, *lists, "the server") == 0
        connection.execute("SET enable_indexscan = on; SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + query, (0,)))
        assert "rankformer_items_embedding_ip" in plan
        # The index answers approximately; one built for another metric would find hardly any of them.
        by_index = np.array(found()).reshape(100, 20)
        shared = [
            len(set(ours) & set(theirs)) for ours, theirs in zip(np.array(own).reshape(100, 20), by_index, strict=True)
        ]
        assert np.mean(shared) > 16

    def test_a_second_load_stops_before_the_data_and_changes_nothing(self, load, postgres, tmp_path):
        ids, titles = odd_items()
        _, connection = load(item_ids=ids, titles=titles)
        with open(tmp_path / "out.sql", "rb") as stream:
            again = postgres.psql(stdin=stream)
        assert again.returncode == 3
        assert again.stderr.count("ERROR") == 1
        assert "already exists" in again.stderr
        assert not (postgres.folder / "owned").exists()
        assert connection.execute("SELECT count(*) FROM rankformer_items").fetchone() == (ITEMS,)

    def test_two_exports_live_side_by_side(self, load, postgres, saved, tmp_path):
        _, connection = load()
        stream = stream_of(saved(seed=1), tmp_path, "other_")
        assert postgres.psql("-f", stream).returncode == 0
        names = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1"
        found = [row[0] for row in connection.execute(names)]
        postgres.psql("-c", "DROP TABLE other_users, other_items")
        assert found == ["other_items", "other_users", "rankformer_items", "rankformer_users"]
