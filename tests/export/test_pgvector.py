"""The SQL stream: its shape, what a real PostgreSQL with the extension makes of it, and `dsn`."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.errors import ConfigError, DataError, RankformerError
from rankformer.export.contents import read_contents
from rankformer.export.exporter import export_run
from rankformer.export.pgvector import PgVector, statements
from rankformer.export.self_test import count_ties
from rankformer.scoring.top_k import top_k

from .conftest import ITEMS, USERS, make_run, needed, odd_items
from .test_postgres_text import KINDS

TESTED = {"PostgreSQL with pgvector": ("target", "psycopg", "pgvector")}


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


@pytest.mark.parametrize(("dimension", "indexed"), [(2000, True), (2001, False)])
def test_the_index_ends_where_pgvector_ends(saved, tmp_path, dimension, indexed):
    vectors = [torch.ones(2, dimension), torch.ones(2, dimension)]
    run = saved(user_ids=pa.array([1, 2]), item_ids=pa.array([1, 2]), vectors=vectors)
    assert ("CREATE INDEX" in stream_of(run, tmp_path).read_text()) == indexed


def test_vectors_of_too_many_dimensions(saved, tmp_path):
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

    def test_titles_numbers_and_metadata(self, load):
        ids, titles = odd_items()
        run, connection = load(item_ids=ids, titles=titles)
        rows = connection.execute("SELECT id, title, embedding::text FROM rankformer_items").fetchall()
        assert [row[0] for row in rows] == ids.to_pylist()
        assert [row[1] for row in rows] == titles.to_pylist()
        vectors = np.array([json.loads(row[2]) for row in rows], dtype=np.float32)
        assert np.array_equal(vectors, make_run(item_ids=ids).recommender.embeddings.items.numpy())
        for table in ("rankformer_users", "rankformer_items"):
            comment = connection.execute(f"SELECT obj_description('{table}'::regclass)").fetchone()[0]
            assert json.loads(comment) == {**read_contents(run).metadata, "to": "pgvector"}

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
        # By the vectors: `recommend` would answer users without an interaction by popularity.
        own = top_k(recommender.embeddings, torch.from_numpy(users), 20).items.numpy()
        query = """SELECT id FROM rankformer_items
                   ORDER BY embedding <#> (SELECT embedding FROM rankformer_users WHERE id = %s) LIMIT 20"""

        def found():
            return [row[0] for user in users.tolist() for row in connection.execute(query, (user,))]

        connection.execute("SET enable_indexscan = off")
        server = recommender.item_ids.index_of(found()).reshape(100, 20)
        assert count_ties(recommender.embeddings, users, own, server, "the server") == 0
        connection.execute("SET enable_indexscan = on; SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + query, (0,)))
        assert "rankformer_items_embedding_ip" in plan
        # The index answers approximately; one built for another metric would find hardly any of them.
        by_index = recommender.item_ids.index_of(found()).reshape(100, 20)
        shared = [len(set(ours) & set(theirs)) for ours, theirs in zip(own, by_index, strict=True)]
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


def tables_of(postgres):
    return postgres.psql("-A", "-t", "-c", "SELECT relname FROM pg_class WHERE relname LIKE 'trial_%'").stdout


def test_the_server_finds_our_lists_and_keeps_nothing(postgres, saved, tmp_path):
    ids, titles = odd_items()
    run = saved(item_ids=ids, titles=titles)
    outcome = export_run(run, PgVector("trial_", postgres.dsn), tmp_path / "out.sql").self_test
    assert outcome.users == 100
    assert outcome.searches[0] == "numpy product"
    assert outcome.searches[1].startswith("PostgreSQL 1")
    assert "with pgvector 0" in outcome.searches[1]
    assert tables_of(postgres) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_takes_ids_of_every_kind(postgres, saved, tmp_path, kind):
    ids = KINDS[kind][0]
    outcome = export_run(saved(user_ids=ids, item_ids=ids), PgVector("trial_", postgres.dsn), tmp_path / "out.sql")
    assert len(outcome.self_test.searches) == 2


def test_tables_of_an_older_export_are_neither_asked_nor_touched(postgres, saved, tmp_path):
    assert (
        postgres.psql("-c", "CREATE TABLE trial_items (id text); INSERT INTO trial_items VALUES ('old')").returncode
        == 0
    )
    try:
        export_run(saved(), PgVector("trial_", postgres.dsn), tmp_path / "out.sql")
        assert postgres.psql("-A", "-t", "-c", "SELECT * FROM trial_items").stdout == "old\n"
    finally:
        postgres.psql("-c", "DROP TABLE trial_items")


def test_a_server_without_the_extension_is_left_without_it(postgres, saved, tmp_path):
    assert postgres.psql("-c", "CREATE DATABASE fresh").returncode == 0
    fresh = postgres.dsn.replace("dbname=postgres", "dbname=fresh")
    assert len(export_run(saved(), PgVector(dsn=fresh), tmp_path / "out.sql").self_test.searches) == 2
    count = postgres.psql(
        "--dbname", fresh, "-A", "-t", "-c", "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"
    )
    assert count.stdout == "0\n"


def test_a_stream_that_the_server_reads_otherwise_is_refused(postgres, saved, tmp_path):
    class Negated(PgVector):
        """Its rows are in order, but a later statement turns the vectors around."""

        def write(self, contents, folder):
            super().write(contents, folder)
            path = folder / self.files[0]
            turned = "UPDATE trial_users SET embedding = embedding * array_fill(-1, ARRAY[8])::vector;\n"
            path.write_text(
                path.read_text(encoding="utf-8").replace("COMMIT;\n", turned + "COMMIT;\n"), encoding="utf-8"
            )

    with pytest.raises(RankformerError, match=r"self-test: PostgreSQL .* ranks otherwise than the run for 100 of 100"):
        export_run(saved(), Negated("trial_", postgres.dsn), tmp_path / "out.sql")
    assert not (tmp_path / "out.sql").exists()
    assert tables_of(postgres) == ""


def test_a_server_that_is_not_there(saved, tmp_path):
    needed("psycopg")
    with pytest.raises(ConfigError, match=r"the server of --dsn could not try the export: .*connection"):
        export_run(saved(), PgVector(dsn=f"host={tmp_path} user=nobody password=secret"), tmp_path / "out.sql")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_server_that_refuses_the_stream(postgres, saved, tmp_path):
    class Broken(PgVector):
        def write(self, contents, folder):
            super().write(contents, folder)
            path = folder / self.files[0]
            path.write_text(path.read_text(encoding="utf-8").replace("vector_ip_ops", "no_such_ops"), encoding="utf-8")

    with pytest.raises(ConfigError, match='could not try the export: operator class "no_such_ops" does not exist'):
        export_run(saved(), Broken("trial_", postgres.dsn), tmp_path / "out.sql")
    assert tables_of(postgres) == ""
