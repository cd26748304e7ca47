"""The stream tried on a live server, which must be left as it was."""

import pytest

from rankformer.errors import ConfigError, RankformerError
from rankformer.export.exporter import export_run
from rankformer.export.pgvector import PgVector

from .conftest import needed, odd_items
from .test_sql_ids import KINDS


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
def test_ids_of_every_kind(postgres, saved, tmp_path, kind):
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
