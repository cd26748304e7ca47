"""What every export holds: ids, titles and vectors of both sides, and the card that says where they come from."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from rankformer.errors import DataError, NotSupportedError
from rankformer.files import sha256_of
from rankformer.runs.run import MANIFEST, Run, load_run
from rankformer.scoring.embeddings import Embeddings

FORMAT = "rankformer-export"
VERSION = 1


@dataclass(frozen=True, eq=False)
class VectorTable:
    """The users, or the items: row by row an id, a vector and perhaps a title.

    Attributes:
        ids: (n,) raw ids.
        vectors: (n, d) their vectors.
        titles: (n,) texts, or None where none are known.
    """

    ids: pa.Array
    vectors: NDArray[np.float32]
    titles: pa.Array | None = None

    def named(self) -> dict[str, pa.Array]:
        """Return the columns that name the rows: id, and title where there are any."""
        return {"id": self.ids} if self.titles is None else {"id": self.ids, "title": self.titles}


class Tables(NamedTuple):
    """Both sides of a model."""

    users: VectorTable
    items: VectorTable


@dataclass(frozen=True, eq=False)
class Contents:
    """What is exported of a run.

    Attributes:
        tables: ids, titles and vectors as they will be written.
        embeddings: the run's own vectors, which the self-test searches.
        card: what the vectors are, as values that JSON can hold.
    """

    tables: Tables
    embeddings: Embeddings
    card: dict[str, Any]


def read_contents(folder: Path) -> Contents:
    """Return what is exported of a run folder.

    Raises:
        RunFolderError: the run is damaged or missing.
        NotSupportedError: the method does not score by an inner product of vectors.
        DataError: there is nothing to export, or a number is too large for 32 bits.
    """
    run = load_run(folder)
    recommender, embeddings = run.recommender, run.recommender.scorer
    if not isinstance(embeddings, Embeddings):
        raise NotSupportedError(
            f"{run.model} does not score by vectors (but by {type(embeddings).__name__}), so it has none to export; "
            "`rankformer recommend --all --out FILE` writes its lists instead"
        )
    if not (embeddings.num_users and embeddings.num_items and embeddings.users.shape[1]):
        raise DataError(f"{folder} holds no users, no items or vectors of width 0; there is nothing to export")
    tables = Tables(
        VectorTable(recommender.user_ids.ids, _float32(embeddings.users)),
        VectorTable(recommender.item_ids.ids, _float32(embeddings.items), recommender.titles),
    )
    return Contents(tables, embeddings, _card(run, tables, sha256_of(folder / MANIFEST)))


def _float32(values: Tensor) -> NDArray[np.float32]:
    """Return the vectors in 32 bits, which is what every format here and its readers compute in."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values.detach().cpu().numpy(), dtype=np.float32)
    if not np.isfinite(numbers).all():
        raise DataError("a vector holds a number beyond the range of 32 bits; train again with another seed or rate")
    return numbers


def _card(run: Run, tables: Tables, model_hash: str) -> dict[str, Any]:
    users, items = tables
    return {
        "format": FORMAT,
        "version": VERSION,
        "rankformer": version("rankformer"),
        "model": run.model,
        "settings": run.settings,
        "seed": run.seed,
        "model_hash": model_hash,
        "data_fingerprint": run.data.get("fingerprint"),
        "metric": "inner_product",
        "width": items.vectors.shape[1],
        "dtype": "float32",
        "num_users": len(users.ids),
        "num_items": len(items.ids),
        "user_id_type": str(users.ids.type),
        "item_id_type": str(items.ids.type),
        "titles": items.titles is not None,
    }
