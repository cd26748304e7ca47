"""Ranked lists into a table of a PostgreSQL database, in one transaction: readers see all of the new ones or none."""

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rankformer.data.readers.sql import redact, without_secrets
from rankformer.errors import ConfigError, DataError, extra_module
from rankformer.export.postgres_text import escape, format_ids, sql_type_of

_BATCH = 65_536
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


def check_target(address: str, table: str) -> None:
    """Refuse an address that is not PostgreSQL's, and a table whose name is not a plain one."""
    if not address.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"--to {redact(address)}: expected postgresql://user@host/database; use --out for files")
    if not _NAME.fullmatch(table):
        raise ConfigError(f"--table {table!r}: expected letters, digits and _, with a schema if need be: public.lists")


def write_lists(lists: pa.Table, address: str, table: str, overwrite: bool = False) -> None:
    """Write lists as the rows of a table, which is made if it is missing.

    Args:
        lists: columns `user_id, item_id, score, rank[, title]`.
        address: of the database; a password in it is shown nowhere.
        table: its name, with a schema or without.
        overwrite: replace the rows of a table that has some.

    Raises:
        ConfigError: the database cannot be reached or refuses, or the table has rows and is not to be overwritten.
    """
    psycopg = extra_module("psycopg", "sql")
    check_target(address, table)
    quoted = ".".join(f'"{part}"' for part in table.split("."))
    columns = ", ".join(f'"{name}"' for name in lists.column_names)
    types = ", ".join(f'"{field.name}" {sql_type_of(field.type)}' for field in lists.schema)
    try:
        with psycopg.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute("SET LOCAL client_min_messages = warning")
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {quoted} ({types})")
            cursor.execute(f"LOCK TABLE {quoted} IN SHARE ROW EXCLUSIVE MODE")  # writers wait; readers need not
            if overwrite:
                cursor.execute(f"DELETE FROM {quoted}")
            elif cursor.execute(f"SELECT 1 FROM {quoted} LIMIT 1").fetchone():
                raise ConfigError(f"the table {table} has rows; replace them with --overwrite, or name another --table")
            with cursor.copy(f"COPY {quoted} ({columns}) FROM STDIN") as copy:
                for rows in _rows(lists):
                    copy.write(rows)
    except psycopg.Error as problem:
        raise ConfigError(f"{redact(address)}: {table} was not written: {without_secrets(problem, address)}") from None
    except UnicodeEncodeError:
        raise DataError("an id or title holds half a character, which PostgreSQL cannot keep; fix the data") from None


def _rows(lists: pa.Table) -> Iterator[str]:
    """Yield the rows as lines of COPY's text form, many lines in one string."""
    for batch in lists.to_batches(max_chunksize=_BATCH):
        columns = [
            escape(format_ids(column), name) for name, column in zip(lists.column_names, batch.columns, strict=True)
        ]
        yield "\n".join(pc.binary_join_element_wise(*columns, "\t").to_pylist()) + "\n"
