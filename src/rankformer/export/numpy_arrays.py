"""NumPy: one plain array per side, and a small Parquet file beside each with the ids of its rows."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankformer.export.base import CARD, Format, read_columns, write_card, write_table
from rankformer.export.contents import Contents, Tables, VectorTable

IDS = ("user_ids.parquet", "item_ids.parquet")


class NumpyArrays(Format):
    """users.npy and items.npy, free of pickle, fit for memory-mapping."""

    name = "numpy"
    files = ("users.npy", "items.npy", *IDS, CARD)

    def write(self, contents: Contents, folder: Path) -> None:
        """Write both arrays, their ids and the card."""
        for side, file in zip(contents.tables, self.files, strict=False):
            write_array(folder / file, side.vectors)
        write_ids(contents, folder)
        write_card(contents, folder)

    def read(self, folder: Path) -> Tables:
        """Return both sides, row i of an array belonging to row i of its ids."""
        return read_with_ids(folder, read_array(folder / "users.npy"), read_array(folder / "items.npy"))


def write_array(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write one array of plain numbers."""
    np.save(path, vectors)


def read_array(path: Path) -> NDArray[np.float32]:
    """Return one array, mapped from the file and not copied; pickle is refused."""
    array: NDArray[np.float32] = np.lib.format.open_memmap(path, mode="r")
    return array


def write_ids(contents: Contents, folder: Path) -> None:
    """Write what names the rows of each side, types kept."""
    for side, file in zip(contents.tables, IDS, strict=True):
        write_table(folder / file, side.named(), contents)


def read_with_ids(folder: Path, users: NDArray[np.float32], items: NDArray[np.float32]) -> Tables:
    """Return vectors put together with the ids that `write_ids` wrote."""
    names = [read_columns(folder / file) for file in IDS]
    sides = zip(names, (users, items), strict=True)
    return Tables(*(VectorTable(named["id"], vectors, named.get("title")) for named, vectors in sides))
