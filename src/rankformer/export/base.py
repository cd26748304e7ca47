"""`Target`: how vectors are written and read back, and what the targets share."""

from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rankformer.errors import ConfigError
from rankformer.export.contents import Contents, Tables


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

    def searches(self, folder: Path, tables: Tables, users: NDArray[np.int64], k: int) -> dict[str, NDArray[np.int64]]:
        """Return the (b, k) best items, as indices, by every kind of search that the self-test should try.

        Args:
            folder: what `write` made.
            tables: what `read` made of it.
            users: (b,) indices.
            k: length of the lists.
        """
        return {"numpy product": search_by_product(tables, users, k)}


def search_by_product(tables: Tables, users: NDArray[np.int64], k: int) -> NDArray[np.int64]:
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


def read_parquet(path: Path) -> dict[str, pa.Array]:
    """Return the columns of a Parquet file by name."""
    table = pq.read_table(path)
    return {name: table[name].combine_chunks() for name in table.column_names}


def extra_module(module: str, extra: str) -> Any:
    """Return a module that comes with one of the package's extras, or say which."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"this needs {module}, which is missing: pip install 'rankformer[{extra}]'") from error
