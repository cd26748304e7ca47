"""Redis: commands in its wire protocol, which `redis-cli --pipe` sends.

    cat index.resp vectors.resp | redis-cli --pipe

vectors.resp fills a hash for each user and item, in any Redis; index.resp makes the index over the items, which needs
the search module.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from rankformer.export.contents import Contents, Tables, VectorTable
from rankformer.export.documents import plain_ids
from rankformer.export.targets import SIDES, Target, checked_prefix


class Redis(Target):
    """The hashes PREFIXuser:ID and PREFIXitem:ID, and the index PREFIXitems over the second.

    Each has id, title where there is one, and vector: 32-bit floats, little-endian.
    """

    name = "redis"
    files = ("index.resp", "vectors.resp")
    options = ("prefix",)

    def __init__(self, prefix: str = "rankformer_") -> None:
        self.prefix = checked_prefix(prefix)

    def write(self, contents: Contents, folder: Path) -> None:
        vector = f"VECTOR FLAT 6 TYPE FLOAT32 DIM {contents.metadata['dimension']} DISTANCE_METRIC IP"
        index = f"FT.CREATE {self.prefix}items ON HASH PREFIX 1 {self.prefix}item: SCHEMA title TEXT vector {vector}"
        (folder / "index.resp").write_bytes(_command(*index.encode().split()))
        with open(folder / "vectors.resp", "wb") as stream:
            for side, table in zip(SIDES, contents.tables, strict=True):
                titles = [None] * len(table.ids) if table.titles is None else table.titles.to_pylist()
                ids = plain_ids(table.ids).cast(pa.string()).to_pylist()
                for name, title, vector in zip(ids, titles, table.vectors.astype("<f4"), strict=True):
                    about = [] if title is None else [b"title", title.encode()]
                    row = [b"id", name.encode(), *about, b"vector", vector.tobytes()]
                    stream.write(_command(b"HSET", f"{self.prefix}{side}:{name}".encode(), *row))

    def read(self, folder: Path) -> Tables:
        tables: dict[str, list[dict[bytes, bytes]]] = {f"{self.prefix}{side}:": [] for side in SIDES}
        with open(folder / "vectors.resp", "rb") as stream:
            for _, key, *row in _commands(stream):
                prefix = next(prefix for prefix in tables if key.startswith(prefix.encode()))
                tables[prefix].append(dict(zip(row[::2], row[1::2], strict=True)))
        return Tables(*map(_table, tables.values()))


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _commands(stream: BinaryIO) -> Iterator[list[bytes]]:
    while head := stream.readline():
        words = []
        for _ in range(int(head[1:])):
            size = int(stream.readline()[1:])
            words.append(stream.read(size + 2)[:-2])
        yield words


def _table(rows: list[dict[bytes, bytes]]) -> VectorTable:
    titles = pa.array([row.get(b"title") for row in rows], pa.binary()).cast(pa.string())
    vectors = np.array([np.frombuffer(row[b"vector"], "<f4") for row in rows], dtype=np.float32)
    ids = pa.array([row[b"id"] for row in rows]).cast(pa.string())
    return VectorTable(ids, vectors, None if titles.null_count == len(titles) else titles)
