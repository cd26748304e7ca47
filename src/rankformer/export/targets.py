"""`Target`: how vectors are written and read back; and the targets that are folders: Parquet, NumPy and FAISS."""

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rankformer.errors import ConfigError, extra_module
from rankformer.export.contents import Contents, Tables, VectorTable

Indices = NDArray[np.int64]
SIDES = ("user", "item")
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Target(ABC):
    """One form of export.

    Attributes:
        name: what the command line calls it.
        files: what `write` leaves in the folder it is given, to which the metadata are added.
        single: whether the one file is the export, metadata included, and not the folder.
        options: arguments of the constructor that the command line may give.
    """

    name: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    single: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def write(self, contents: Contents, folder: Path) -> None:
        """Write the files into an empty folder."""

    @abstractmethod
    def read(self, folder: Path) -> Tables:
        """Return users and items as they stand in the files."""

    def searches(self, folder: Path, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return the (b, k) best items, as indices, by every kind of search that the self-test should try.

        Args:
            folder: what `write` made.
            tables: what `read` made of it.
            users: (b,) indices.
            k: length of the lists.
        """
        return {"numpy product": search_by_product(tables, users, k)}


class ParquetFiles(Target):
    """users.parquet and items.parquet, for pandas, polars, DuckDB, Spark and most vector databases.

    Each has id, title where there are any, and a list column of fixed length for the vectors.
    """

    name = "parquet"
    files = ("users.parquet", "items.parquet")

    def write(self, contents: Contents, folder: Path) -> None:
        for table, file in zip(contents.tables, self.files, strict=True):
            numbers = pa.array(table.vectors.reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(numbers, table.vectors.shape[1])
            write_parquet(folder / file, {**table.named(), "vector": vectors}, contents)

    def read(self, folder: Path) -> Tables:
        return Tables(*(_read_parquet(folder / file) for file in self.files))


class NumpyArrays(Target):
    """users.npy and items.npy, free of pickle, fit for memory-mapping; a small Parquet file beside each has its ids."""

    name = "numpy"
    files: ClassVar[tuple[str, ...]] = ("users.npy", "items.npy", "user_ids.parquet", "item_ids.parquet")

    def write(self, contents: Contents, folder: Path) -> None:
        for side, table in zip(SIDES, contents.tables, strict=True):
            self.write_vectors(side, table.vectors, folder)
            write_parquet(folder / f"{side}_ids.parquet", table.named(), contents)

    def read(self, folder: Path) -> Tables:
        sides = {side: self.read_vectors(side, folder) for side in SIDES}
        return Tables(*(_read_parquet(folder / f"{side}_ids.parquet", rows) for side, rows in sides.items()))

    def write_vectors(self, side: str, vectors: NDArray[np.float32], folder: Path) -> None:
        """Write the vectors of users ("user") or items ("item"); row i belongs to row i of their ids."""
        np.save(folder / f"{side}s.npy", vectors)

    def read_vectors(self, side: str, folder: Path) -> NDArray[np.float32]:
        """Return what `write_vectors` wrote, mapped from the file and not copied; pickle is refused."""
        array: NDArray[np.float32] = np.lib.format.open_memmap(folder / f"{side}s.npy", mode="r")
        return array


class FaissIndex(NumpyArrays):
    """items.faiss, an exact inner-product index (IndexFlatIP); users.npy, the queries for it; the ids of both."""

    name = "faiss"
    files = ("items.faiss", "users.npy", "user_ids.parquet", "item_ids.parquet")

    def __init__(self) -> None:
        self.faiss: Any = extra_module("faiss", "faiss")

    def write_vectors(self, side: str, vectors: NDArray[np.float32], folder: Path) -> None:
        if side == "user":
            return super().write_vectors(side, vectors, folder)
        index = self.faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        self.faiss.write_index(index, str(folder / "items.faiss"))
        return None

    def read_vectors(self, side: str, folder: Path) -> NDArray[np.float32]:
        if side == "user":
            return super().read_vectors(side, folder)
        index = self._index(folder)
        rows: NDArray[np.float32] = index.reconstruct_n(0, index.ntotal)
        return rows

    def searches(self, folder: Path, tables: Tables, users: Indices, k: int) -> dict[str, Indices]:
        """Return what the index itself finds."""
        _, found = self._index(folder).search(np.ascontiguousarray(tables.users.vectors[users]), k)
        return {f"faiss {self.faiss.__version__}": found}

    def _index(self, folder: Path) -> Any:
        return self.faiss.read_index(str(folder / "items.faiss"))


def search_by_product(tables: Tables, users: Indices, k: int) -> Indices:
    """Return the items with the k largest inner products of each user, best first, (b, k)."""
    lists = np.empty((len(users), k), dtype=np.int64)
    for row, user in enumerate(users):  # one user at a time: a catalogue may be large
        scores = tables.items.vectors @ tables.users.vectors[user]
        best = np.argpartition(-scores, k - 1)[:k]
        lists[row] = best[np.argsort(-scores[best], kind="stable")]
    return lists


def write_parquet(path: Path, columns: dict[str, pa.Array], contents: Contents) -> None:
    """Write columns as Parquet, the metadata in that of its schema."""
    pq.write_table(pa.table(columns, metadata={"rankformer": contents.metadata_json()}), path)


def _read_parquet(path: Path, vectors: NDArray[np.float32] | None = None) -> VectorTable:
    """Return ids and titles with the vectors given, or those of the list column."""
    table = pq.read_table(path)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    if vectors is None:
        lists = columns["vector"]
        vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, lists.type.list_size)
    return VectorTable(columns["id"], vectors, columns.get("title"))


def checked_prefix(prefix: str) -> str:
    """Return what names in a database begin with, after refusing what would have to be quoted there."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"prefix={prefix!r}: expected lower-case letters, digits and _, no digit first, at most 40")
    return prefix
