"""Interactions selected from a database, in batches: PostgreSQL, DuckDB, SQLite, and Parquet on object storage.

    postgresql://user@host/name      by psycopg; the password from PGPASSWORD, ~/.pgpass, or the address
    duckdb:file.db  sqlite:file.db   opened for reading only
    s3://bucket/*.parquet            by DuckDB and its extension httpfs; also gs://, az://, https://

What is secret in an address never leaves this module: `redact` takes it out of whatever is shown or stored.
"""

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from rankformer.data.readers.base import BLOCK_BYTES, ENCODED, RawTable, clip, collect, is_needed
from rankformer.data.readers.input_file import as_stream
from rankformer.data.readers.options import ReadOptions
from rankformer.errors import ConfigError, DataError, UserError, extra_module

_POSTGRES = ("postgresql://", "postgres://")
_FILES = ("duckdb:", "sqlite:")
_OBJECTS = ("s3://", "gs://", "gcs://", "r2://", "az://", "azure://", "abfss://", "https://", "http://")
_PASSWORD = re.compile(r"^(\w+://[^:/@?]*):(.*)@")  # greedy: a password may hold an @ that should have been escaped
_PARAMETER = re.compile(r"([?&])([^=&]*(?:password|secret|token|key|sig|credential|passfile)[^=&]*)=([^&]*)", re.I)
_BATCH = 65_536
# PostgreSQL's type numbers -> how its csv is read; other types stay as they are written.
_POSTGRES_TYPES = {
    **dict.fromkeys((20, 21, 23, 26), pa.int64()),
    **dict.fromkeys((700, 701), pa.float64()),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}


def is_database(source: str) -> bool:
    """Return whether DATA is the address of a database or of files on object storage."""
    return source.startswith((*_POSTGRES, *_FILES, *_OBJECTS))


def redact(source: str) -> str:
    """Return an address without its password and other secrets; anything else as it is."""
    if not is_database(source) or source.startswith(_FILES):
        return source
    source = _PARAMETER.sub(r"\1", _PASSWORD.sub(r"\1@", source))
    return re.sub(r"([?&])&+", r"\1", source).rstrip("?&")


def without_secrets(text: object, source: str) -> str:
    """Return an error's text on one line, with whatever is secret in an address replaced by ***."""
    secrets = [found[2] for found in _PASSWORD.finditer(source)] + [found[3] for found in _PARAMETER.finditer(source)]
    # An @ or / that was not escaped cuts a password in pieces, any of which an error may quote.
    cuts = [(secret, found.span()) for secret in secrets for found in re.finditer(r"[@/:#?%]", secret)]
    pieces = {*secrets, *(piece for secret, (begin, end) in cuts for piece in (secret[:begin], secret[end:]))}
    line = " ".join(str(text).split())
    for piece in sorted(pieces, key=len, reverse=True):
        line = line.replace(piece, "***") if len(piece) > 2 else line
    return clip(line, 300)


def file_of(source: str) -> Path:
    """Return the file of a `duckdb:` or `sqlite:` address."""
    return Path(source.partition(":")[2].removeprefix("//")).expanduser()


def sql_tables(source: str, options: ReadOptions, named: Collection[str] | None, whole: bool) -> Iterator[RawTable]:
    """Yield what the query of the options selects, or the columns of their table that a log needs.

    Args:
        source: the address, which may hold a password.
        options: `query` or `table` (neither is needed for Parquet files), and limits.
        named: columns to read besides those with known names.
        whole: whether all rows are one table; else each batch is, as the database sends it.
    """
    batches = _batches(source, options, named)
    tables = [collect(batches, redact(source), options)] if whole else map(pa.table, batches)
    yield from (RawTable(table, options.table or "the query's result", options=options) for table in tables)


def _batches(source: str, options: ReadOptions, named: Collection[str] | None) -> Iterator[pa.RecordBatch]:
    if options.query and options.table:
        raise ConfigError("query and table cannot be given together; use --query or --table")
    name = redact(source)
    connect = _postgres if source.startswith(_POSTGRES) else _sqlite if source.startswith("sqlite:") else _duckdb
    with connect(source) as database:
        if options.query:
            query = options.query.strip().rstrip(";")
        elif source.startswith(_OBJECTS):
            query = "select * from read_parquet('" + source.replace("'", "''") + "')"
        elif options.table:
            table = ".".join('"' + part.replace('"', '""') + '"' for part in options.table.split("."))
            needed = [column for column in database.columns(f"select * from {table}") if is_needed(column, named)]
            listed = ", ".join('"' + column.replace('"', '""') + '"' for column in needed)
            query = f"select {listed or '*'} from {table}"
        else:
            found = ", ".join(row[0] for row in database.connection.execute(database.TABLES).fetchall()[:12]) or "none"
            raise ConfigError(f"{name}: say what to read with --table (found: {found}) or --query 'select ...'")
        columns = database.columns(query)
        if duplicate := next((column for column in columns if columns.count(column) > 1), None):
            raise DataError(f"the query selects two columns {duplicate!r}; name one of them otherwise with AS")
        batches = (batch for batch in database.batches(query) if batch.num_rows)
        if (first := next(batches, None)) is None:
            raise DataError(f"{name}: the query selects no rows; expected one row per interaction")
        yield first
        yield from batches


class _Database(ABC):
    """An open database: the query for the names of its tables, the columns of a query, and its rows in batches."""

    TABLES = """
    select case when table_schema in ('public', 'main') then '' else table_schema || '.' end || table_name
    from information_schema.tables where table_schema not in ('pg_catalog', 'information_schema') order by 1"""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    @abstractmethod
    def columns(self, query: str) -> list[str]: ...

    @abstractmethod
    def batches(self, query: str) -> Iterator[pa.RecordBatch]: ...


class _Postgres(_Database):
    def columns(self, query: str) -> list[str]:
        return [column.name for column in self._describe(query)]

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield what COPY sends, as it comes in; COPY is several times as fast as rows made into Python objects."""
        kinds = {column.name: _POSTGRES_TYPES.get(column.type_code, ENCODED) for column in self._describe(query)}
        with self.connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
            stream = as_stream(map(bytes, copy))
            if not stream.peek(1):
                return
            yield from pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=list(kinds)),
                pyarrow.csv.ParseOptions(newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
                ),
            )

    def _describe(self, query: str) -> Any:
        # Prepared, since that takes one statement: another could end the transaction that only reads.
        return self.connection.execute(f"SELECT * FROM ({query}) AS log LIMIT 0", prepare=True).description


class _DuckDB(_Database):
    def columns(self, query: str) -> list[str]:
        # The query may come from a run folder of others, and DuckDB writes files even where its database is read-only.
        if [each.type.name for each in self.connection.extract_statements(query)] != ["SELECT"]:
            raise DataError(f"the query is not one SELECT, which is all that is run: {clip(query, 80)!r}")
        return list(self.connection.sql(query).columns)

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        yield from self.connection.sql(query).to_arrow_reader(_BATCH * 8)


class _SQLite(_Database):
    TABLES = "select name from sqlite_master where type in ('table', 'view') order by 1"

    def columns(self, query: str) -> list[str]:
        return [column[0] for column in self.connection.execute(query).description or ()]

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        cursor = self.connection.execute(query)
        names = [column[0] for column in cursor.description]
        while rows := list(islice(cursor, _BATCH)):
            yield pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], names=names)


@contextmanager
def _postgres(source: str) -> Iterator[_Postgres]:
    psycopg = extra_module("psycopg", "sql")
    with _reporting(source, psycopg.Error), psycopg.connect(source) as connection:
        connection.read_only = True
        # One order of rows from one reading to the next, since a split goes by it; times in one zone and form.
        for setting in (
            "synchronize_seqscans = off",
            "max_parallel_workers_per_gather = 0",
            "TimeZone = 'UTC'",
            "DateStyle = 'ISO'",
            "client_encoding = 'UTF8'",
        ):
            connection.execute(f"SET LOCAL {setting}")
        yield _Postgres(connection)


@contextmanager
def _duckdb(source: str) -> Iterator[_DuckDB]:
    duckdb, on_storage = extra_module("duckdb", "sql"), source.startswith(_OBJECTS)
    target = ":memory:" if on_storage else str(_existing(source))
    with _reporting(source, duckdb.Error), closing(duckdb.connect(target, read_only=not on_storage)) as connection:
        connection.execute("set enable_progress_bar = false")  # stdout is for the command's own output
        for extension in ("httpfs", "aws") if source.startswith("s3:") else ("httpfs",) if on_storage else ():
            connection.execute(f"install {extension}")
            connection.execute(f"load {extension}")
        if source.startswith("s3:"):
            connection.execute("create secret (type s3, provider credential_chain)")
        yield _DuckDB(connection)


def _only_reading(action: int, *_: str | None) -> int:
    """Let a query only select; others, such as VACUUM INTO, write files even where the database is read-only."""
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY


@contextmanager
def _sqlite(source: str) -> Iterator[_SQLite]:
    address, kinds = f"{_existing(source).absolute().as_uri()}?mode=ro", (sqlite3.Error, sqlite3.Warning)
    with _reporting(source, *kinds), closing(sqlite3.connect(address, uri=True)) as connection:
        connection.set_authorizer(_only_reading)
        yield _SQLite(connection)


@contextmanager
def _reporting(source: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of a database, of these kinds, and of its rows into one line without secrets."""
    try:
        yield
    except UserError:
        raise
    except kinds as problem:
        raise DataError(
            f"{redact(source)}: {without_secrets(problem, source)}; check the address and the query"
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as problem:
        raise DataError(
            f"{redact(source)}: rows cannot be read ({without_secrets(problem, source)}); cast them in --query"
        ) from None


def _existing(source: str) -> Path:
    if not file_of(source).is_file():
        raise DataError(f"{source}: {file_of(source)} is not a file; check the path")
    return file_of(source)
