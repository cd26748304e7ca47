"""pgvector: one stream of SQL and COPY data that psql loads into PostgreSQL with the vector extension.

    rankformer export RUN --to pgvector --out - | psql -d DATABASE

All of it is one transaction. The stream stops psql at the first error, so that the lines after a COPY that was refused
are never read as commands.
"""

import re
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rankformer.errors import ConfigError, DataError
from rankformer.export.base import Format, card_text
from rankformer.export.contents import Contents, Tables, VectorTable
from rankformer.export.copy_text import END, copy_lines, parse_vectors, unescape
from rankformer.export.pgvector_server import search_on_server
from rankformer.export.sql_ids import PARSERS, sql_type_of

MAX_WIDTH, MAX_INDEXED_WIDTH = 16_000, 2_000  # of pgvector's type `vector`, and of its index over it
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_ROWS_AT_ONCE = 10_000


class PgVector(Format):
    """export.sql: tables PREFIXusers and PREFIXitems with their rows, and an index for inner products."""

    name = "pgvector"
    files = ("export.sql",)
    single = True

    def __init__(self, prefix: str = "rankformer_", dsn: str | None = None) -> None:
        """Prepare for tables with a prefix; with a `dsn` the self-test also asks that server."""
        if not _PREFIX.fullmatch(prefix):
            raise ConfigError(
                f"prefix={prefix!r}: expected lower-case letters, digits and _, no digit first, at most 40"
            )
        self.names = (f"{prefix}users", f"{prefix}items")
        self.dsn = dsn

    def write(self, contents: Contents, folder: Path) -> None:
        """Write the stream."""
        width = contents.tables.items.vectors.shape[1]
        if width > MAX_WIDTH:
            raise DataError(
                f"vectors of width {width}: pgvector holds at most {MAX_WIDTH}; train with fewer dimensions"
            )
        with open(folder / self.files[0], "w", encoding="utf-8", newline="\n") as stream:
            stream.write(_header(contents))
            for name, table in zip(self.names, contents.tables, strict=True):
                stream.write(_table_statements(name, table))
                stream.writelines(copy_lines(table))
                stream.write(END)
            stream.write(_footer(self.names, contents))

    def read(self, folder: Path) -> Tables:
        """Return both sides from the COPY data of the stream, ids read by the type of their column."""
        kinds, tables = {}, {}
        with open(folder / self.files[0], encoding="utf-8", newline="\n") as stream:
            for sql, data in statements(stream):
                if found := re.match(r"CREATE TABLE (\w+) \(\n    id ([a-z ]+) PRIMARY KEY,", sql):
                    kinds[found[1]] = found[2]
                elif found := re.match(r"COPY (\w+) \(id, (title, )?embedding\)", sql):
                    tables[found[1]] = _parse_rows(data, kinds[found[1]])
        return Tables(*(tables[name] for name in self.names))

    def searches(self, folder: Path, tables: Tables, users: NDArray[np.int64], k: int) -> dict[str, NDArray[np.int64]]:
        """Return what the rows of the stream give, and what a server finds if one was named."""
        found = super().searches(folder, tables, users, k)
        if self.dsn is not None:
            with open(folder / self.files[0], encoding="utf-8", newline="\n") as stream:
                found |= search_on_server(self.dsn, statements(stream), self.names, tables, users, k)
        return found


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


def _header(contents: Contents) -> str:
    comments = [
        "rankformer export: user and item vectors for PostgreSQL with the pgvector extension.",
        "Load it with psql, for example: psql -d DATABASE -f THIS_FILE",
        *card_text(contents).splitlines(),
    ]
    return "".join(f"-- {line}\n" for line in comments) + (
        "\\set ON_ERROR_STOP on\n"
        "BEGIN;\n"
        "SET LOCAL client_encoding = 'UTF8';\n"
        "SET LOCAL standard_conforming_strings = on;\n"
        "SET LOCAL client_min_messages = warning;\n"
        "CREATE EXTENSION IF NOT EXISTS vector;\n"
    )


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


def _footer(names: tuple[str, str], contents: Contents) -> str:
    """Return the index over the items, if pgvector can make one so wide, the card as a comment, and the end."""
    items = names[1]
    index = f"CREATE INDEX {items}_embedding_ip ON {items} USING hnsw (embedding vector_ip_ops);\n"
    card = card_text(contents, indent=None).replace("'", "''")
    comments = "".join(f"COMMENT ON TABLE {name} IS '{card}';\n" for name in names)
    return (index if contents.card["width"] <= MAX_INDEXED_WIDTH else "") + comments + "COMMIT;\n"


def _parse_rows(lines: Iterator[str], kind: str) -> VectorTable:
    """Return the table that lines of COPY data stand for: id, title if there are three columns, embedding."""
    ids, titles, vectors = [], [], []
    while block := [line.removesuffix("\n").split("\t") for line in islice(lines, _ROWS_AT_ONCE)]:
        ids += [PARSERS[kind](unescape(row[0]) or "") for row in block]
        titles += [unescape(row[1]) for row in block if len(row) == 3]
        vectors.append(parse_vectors([row[-1] for row in block], block[0][-1].count(",") + 1))
    return VectorTable(pa.array(ids), np.concatenate(vectors), pa.array(titles, pa.string()) if titles else None)
