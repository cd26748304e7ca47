"""NumPy: one plain array of users and one of items, and a small Parquet file beside each with the ids of its rows."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankformer.export.base import Target, read_parquet, write_parquet
from rankformer.export.contents import Contents, Tables, VectorTable

IDS = ("user_ids.parquet", "item_ids.parquet")


class NumpyArrays(Target):
    """users.npy and items.npy, free of pickle, fit for memory-mapping."""

    name = "numpy"
    files = ("users.npy", "items.npy", *IDS)

    def write(self, contents: Contents, folder: Path) -> None:
        """Write both arrays and their ids."""
        for table, file in zip(contents.tables, self.files, strict=False):
            np.save(folder / file, table.vectors)
        write_ids(contents, folder)

    def read(self, folder: Path) -> Tables:
        """Return users and items, row i of an array belonging to row i of its ids."""
        return read_with_ids(folder, read_array(folder / "users.npy"), read_array(folder / "items.npy"))


def read_array(path: Path) -> NDArray[np.float32]:
    """Return one array, mapped from the file and not copied; pickle is refused."""
    array: NDArray[np.float32] = np.lib.format.open_memmap(path, mode="r")
    return array


def write_ids(contents: Contents, folder: Path) -> None:
    """Write the ids of users and items, types kept."""
    for table, file in zip(contents.tables, IDS, strict=True):
        write_parquet(folder / file, table.named(), contents)


def read_with_ids(folder: Path, users: NDArray[np.float32], items: NDArray[np.float32]) -> Tables:
    """Return vectors put together with the ids that `write_ids` wrote."""
    tables = []
    for vectors, file in zip((users, items), IDS, strict=True):
        columns = read_parquet(folder / file)
        tables.append(VectorTable(columns["id"], vectors, columns.get("title")))
    return Tables(*tables)
