"""`Format`: how vectors are written and read back, and what the formats share."""

import json
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

CARD = "card.json"


class Format(ABC):
    """One form of export.

    Attributes:
        name: how it is called on the command line.
        files: what `write` leaves in the folder it is given.
        single: whether the one file is the export, and not the folder.
    """

    name: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    single: ClassVar[bool] = False

    @abstractmethod
    def write(self, contents: Contents, folder: Path) -> None:
        """Write the files into an empty folder."""

    @abstractmethod
    def read(self, folder: Path) -> Tables:
        """Return both sides as they stand in the files."""

    def searches(self, folder: Path, tables: Tables, users: NDArray[np.int64], k: int) -> dict[str, NDArray[np.int64]]:
        """Return the (b, k) best items, as row numbers, by every kind of search that the self-test should try.

        Args:
            folder: what `write` made.
            tables: what `read` made of it.
            users: (b,) row numbers.
            k: length of the lists.
        """
        return {"numpy product": search_by_product(tables, users, k)}


def search_by_product(tables: Tables, users: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Return the rows of the k largest inner products of each user, best first, (b, k)."""
    lists = np.empty((len(users), k), dtype=np.int64)
    for place, user in enumerate(users):  # one row of scores at a time: a catalogue may be large
        scores = tables.items.vectors @ tables.users.vectors[user]
        best = np.argpartition(-scores, k - 1)[:k]
        lists[place] = best[np.argsort(-scores[best], kind="stable")]
    return lists


def card_text(contents: Contents, indent: int | None = 2) -> str:
    """Return the card as JSON in plain ASCII, which every reader's encoding can take."""
    return json.dumps(contents.card, indent=indent, allow_nan=False)


def write_card(contents: Contents, folder: Path) -> None:
    """Write the card beside the vectors."""
    (folder / CARD).write_text(card_text(contents) + "\n", encoding="ascii")


def write_table(path: Path, columns: dict[str, pa.Array], contents: Contents) -> None:
    """Write columns as Parquet, the card in its schema metadata."""
    pq.write_table(pa.table(columns, metadata={"rankformer": card_text(contents, indent=None)}), path)


def read_columns(path: Path) -> dict[str, pa.Array]:
    """Return the columns of a Parquet file by name."""
    table = pq.read_table(path)
    return {name: table[name].combine_chunks() for name in table.column_names}


def extra_module(module: str, extra: str) -> Any:
    """Return a module that comes with one of the package's extras, or say which."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"this needs {module}, which is missing: pip install 'rankformer[{extra}]'") from error
