"""pgvector: one stream of SQL and COPY data that psql loads into PostgreSQL with the vector extension.

    rankformer export RUN --to pgvector --out - | psql -d DATABASE

All of it is one transaction. The stream stops psql at the first error, so that the lines after a COPY that was refused
are never read as commands.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankformer.errors import ConfigError, DataError, extra_module
from rankformer.export.contents import Contents, Tables, VectorTable
from rankformer.export.postgres_text import END, format_ids, format_rows, parse_rows, sql_type_of
from rankformer.export.targets import Indices, Target, checked_prefix

MAX_DIMENSION, MAX_INDEXED_DIMENSION = 16_000, 2_000  # of pgvector's type `vector`, and of its index over it
_COMMENTS = (
    "rankformer export: user and item vectors for PostgreSQL with the pgvector extension.",
    "Load it with psql, for example: psql -d DATABASE -f THIS_FILE",
)
_BEGINNING = """\\set ON_ERROR_STOP on
BEGIN;
SET LOCAL client_encoding = 'UTF8';
SET LOCAL standard_conforming_strings = on;
SET LOCAL client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS vector;
"""
_VERSIONS = "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"


class PgVector(Target):
    """export.sql: tables PREFIXusers and PREFIXitems with their rows, and an index for inner products."""

    name = "pgvector"
    files = ("export.sql",)
    single = True
    options = ("prefix", "dsn")

    def __init__(self, prefix: str = "rankformer_", dsn: str | None = None) -> None:
        """Prepare for tables with a prefix; with a `dsn` the self-test also queries that server."""
        checked_prefix(prefix)
        self.names = (f"{prefix}users", f"{prefix}items")
        self.dsn = dsn

    def write(self, contents: Contents, folder: Path) -> None:
        dimension = contents.metadata["dimension"]
        if dimension > MAX_DIMENSION:
            raise DataError(f"dimension {dimension}: pgvector holds at most {MAX_DIMENSION}; train with fewer")
        with open(folder / self.files[0], "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"-- {line}\n" for line in (*_COMMENTS, *contents.metadata_json(indent=2).splitlines()))
            stream.write(_BEGINNING)
            for name, table in zip(self.names, contents.tables, strict=True):
                stream.write(_table_statements(name, table))
                stream.writelines(format_rows(table))
                stream.write(END)
            if dimension <= MAX_INDEXED_DIMENSION:
                items = self.names[1]
                stream.write(f"CREATE INDEX {items}_embedding_ip ON {items} USING hnsw (embedding vector_ip_ops);\n")
            metadata = contents.metadata_json().replace("'", "''")
            stream.writelines(f"COMMENT ON TABLE {name} IS '{metadata}';\n" for name in self.names)
            stream.write("COMMIT;\n")

    def read(self, folder: Path) -> Tables:
        sql_types, tables = {}, {}
        with open(folder / self.files[0], encoding="utf-8", newline="\n") as stream:
            for sql, data in statements(stream):
                if found := re.match(r"CREATE TABLE (\w+) \(\n    id ([a-z ]+) PRIMARY KEY,", sql):
                    sql_types[found[1]] = found[2]
                elif found := re.match(r"COPY (\w+) \(id, (title, )?embedding\)", sql):
                    tables[found[1]] = parse_rows(data, sql_types[found[1]])
        return Tables(*(tables[name] for name in self.names))

    def searches(self, folder: Path, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return what the rows of the stream give, and what a server finds if one was named."""
        found = super().searches(folder, tables, users, k)
        if self.dsn is not None:
            with open(folder / self.files[0], encoding="utf-8", newline="\n") as stream:
                found |= self._search_on_server(self.dsn, stream, tables, users, k)
        return found

    def _search_on_server(self, dsn: str, stream: TextIO, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return the (b, k) items that a server finds by `<#>`, under the server's name and versions.

        The tables are loaded as temporary ones in a transaction that is rolled back; nobody else ever sees them.

        Raises:
            ConfigError: the server cannot be reached, or does not take the stream.
        """
        psycopg = extra_module("psycopg", "pgvector")
        user_table, item_table = self.names
        query = (
            f"SELECT id FROM {item_table} ORDER BY embedding <#> "
            f"(SELECT embedding FROM {user_table} WHERE id = %s) LIMIT {k}"
        )
        asked = format_ids(tables.users.ids.take(pa.array(users))).to_pylist()
        try:
            with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
                _load_temporarily(cursor, stream)
                server, extension = cursor.execute(_VERSIONS).fetchone()
                found = [row[0] for user in asked for row in cursor.execute(query, (user,))]
                connection.rollback()
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"the server of --dsn could not try the export: {reason}") from error
        indices = pc.index_in(pa.array(found).cast(tables.items.ids.type), value_set=tables.items.ids)
        lists = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return {f"PostgreSQL {server} with pgvector {extension}": lists.reshape(len(users), -1)}


def statements(stream: TextIO) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield each SQL statement of a stream with the lines of data behind it, comments and psql's commands left out."""
    pending = ""
    for line in stream:
        if line.startswith(("--", "\\")):
            continue
        pending += line
        if line.endswith(";\n"):
            data = takewhile(lambda row: row != END, stream if pending.startswith("COPY ") else ())
            yield pending, data
            for _ in data:  # whatever the caller did not want
                pass
            pending = ""


def _load_temporarily(cursor: Any, stream: TextIO) -> None:
    # The extension first and in its usual place, since a temporary schema cannot hold one.
    cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    cursor.execute("SELECT set_config('search_path', 'pg_temp, ' || current_setting('search_path'), true)")
    for sql, data in statements(stream):
        if sql.startswith("COPY "):
            with cursor.copy(sql) as copy:
                for line in data:
                    copy.write(line)
        elif sql not in ("BEGIN;\n", "COMMIT;\n"):
            cursor.execute(sql)
    cursor.execute("SET LOCAL enable_indexscan = off")  # the index is approximate; what is compared here is exact


def _table_statements(name: str, table: VectorTable) -> str:
    """Return what creates a table and begins its data."""
    title, column = ("    title text,\n", "title, ") if table.titles is not None else ("", "")
    return (
        f"CREATE TABLE {name} (\n"
        f"    id {sql_type_of(table.ids.type)} PRIMARY KEY,\n"
        f"{title}"
        f"    embedding vector({table.vectors.shape[1]}) NOT NULL\n"
        ");\n"
        f"COPY {name} (id, {column}embedding) FROM stdin;\n"
    )
