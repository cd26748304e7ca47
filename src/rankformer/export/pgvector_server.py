"""A pgvector stream tried on a live server, which is left as it was."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rankformer.errors import ConfigError
from rankformer.export.base import extra_module
from rankformer.export.contents import Tables
from rankformer.export.sql_ids import spell

_VERSIONS = "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"


def search_on_server(
    dsn: str,
    statements: Iterable[tuple[str, Iterator[str]]],
    names: tuple[str, str],
    tables: Tables,
    users: NDArray[np.int64],
    k: int,
) -> dict[str, NDArray[np.int64]]:
    """Return the (b, k) rows of the items that a server finds by `<#>`, under the server's name and versions.

    The tables are loaded as temporary ones in a transaction that is rolled back; nobody else ever sees them.

    Raises:
        ConfigError: the server cannot be reached, or does not take the stream.
    """
    psycopg = extra_module("psycopg", "pgvector")
    try:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            _load_temporarily(cursor, statements)
            server, extension = cursor.execute(_VERSIONS).fetchone()
            found = _search(cursor, names, spell(tables.users.ids.take(pa.array(users))).to_pylist(), k)
            connection.rollback()
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the server of --dsn could not try the export: {reason}") from error
    rows = pc.index_in(pa.array(found).cast(tables.items.ids.type), value_set=tables.items.ids)
    lists = pc.fill_null(rows, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return {f"PostgreSQL {server} with pgvector {extension}": lists.reshape(len(users), -1)}


def _load_temporarily(cursor: Any, statements: Iterable[tuple[str, Iterator[str]]]) -> None:
    # The extension first and in its usual place, since a temporary schema cannot hold one.
    cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    cursor.execute("SELECT set_config('search_path', 'pg_temp, ' || current_setting('search_path'), true)")
    for sql, data in statements:
        if sql.startswith("COPY "):
            with cursor.copy(sql) as copy:
                for line in data:
                    copy.write(line)
        elif sql not in ("BEGIN;\n", "COMMIT;\n"):
            cursor.execute(sql)
    cursor.execute("SET LOCAL enable_indexscan = off")  # the index is approximate; what is compared here is exact


def _search(cursor: Any, names: tuple[str, str], users: list[str], k: int) -> list[Any]:
    """Return the ids of the k best items of each user, one list after the other."""
    users_table, items_table = names
    query = (
        f"SELECT id FROM {items_table} ORDER BY embedding <#> "
        f"(SELECT embedding FROM {users_table} WHERE id = %s) LIMIT {k}"
    )
    return [row[0] for user in users for row in cursor.execute(query, (user,))]
