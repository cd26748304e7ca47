"""FAISS: the items as an exact inner-product index, the users as the queries to ask it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankformer.export.base import Target, extra_module
from rankformer.export.contents import Contents, Tables
from rankformer.export.numpy_arrays import IDS, read_array, read_with_ids, write_ids


class FaissIndex(Target):
    """items.faiss (IndexFlatIP), users.npy, and the ids of both."""

    name = "faiss"
    files = ("items.faiss", "users.npy", *IDS)

    def __init__(self) -> None:
        self.faiss: Any = extra_module("faiss", "faiss")

    def write(self, contents: Contents, folder: Path) -> None:
        """Write the index, the queries and the ids."""
        users, items = contents.tables
        index = self.faiss.IndexFlatIP(items.vectors.shape[1])
        index.add(items.vectors)
        self.faiss.write_index(index, str(folder / "items.faiss"))
        np.save(folder / "users.npy", users.vectors)
        write_ids(contents, folder)

    def read(self, folder: Path) -> Tables:
        """Return users and items, the items' vectors taken out of the index."""
        index = self._index(folder)
        return read_with_ids(folder, read_array(folder / "users.npy"), index.reconstruct_n(0, index.ntotal))

    def searches(self, folder: Path, tables: Tables, users: NDArray[np.int64], k: int) -> dict[str, NDArray[np.int64]]:
        """Return what the index itself finds."""
        _, found = self._index(folder).search(np.ascontiguousarray(tables.users.vectors[users]), k)
        return {f"faiss {self.faiss.__version__}": found}

    def _index(self, folder: Path) -> Any:
        return self.faiss.read_index(str(folder / "items.faiss"))
