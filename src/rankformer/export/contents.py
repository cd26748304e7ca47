"""What every export holds: ids, titles and vectors of users and items, and metadata on where they come from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from rankformer.errors import DataError, NotSupportedError
from rankformer.files import sha256_of
from rankformer.runs.manifest import MANIFEST, located
from rankformer.runs.saved import load_run
from rankformer.scoring.embeddings import Embeddings

FORMAT = "rankformer-export"
VERSION = 2


class VectorTable(NamedTuple):
    """The users, or the items.

    Attributes:
        ids: (n,) raw ids.
        vectors: (n, d) their embeddings.
        titles: (n,) strings, or None where none are known.
        attributes: other columns by name, for files that can hold any; nothing in them is compared by the self-test.
    """

    ids: pa.Array
    vectors: NDArray[np.float32]
    titles: pa.Array | None = None
    attributes: Mapping[str, pa.Array] = MappingProxyType({})

    def named(self) -> dict[str, pa.Array]:
        """Return the columns that describe the rows: id, title where there are any, attributes as attribute.NAME."""
        named = {"id": self.ids} if self.titles is None else {"id": self.ids, "title": self.titles}
        return named | {f"attribute.{name}": values for name, values in self.attributes.items()}


class Tables(NamedTuple):
    """The users and the items of a model."""

    users: VectorTable
    items: VectorTable


@dataclass(frozen=True, eq=False)
class Contents:
    """What is exported of a run.

    Attributes:
        tables: ids, titles and vectors as they will be written.
        embeddings: the run's own embeddings, which the self-test searches.
        metadata: what the vectors are, as values that JSON can hold.
    """

    tables: Tables
    embeddings: Embeddings
    metadata: dict[str, Any]

    def metadata_json(self, indent: int | None = None) -> str:
        """Return the metadata as JSON in plain ASCII, which every reader's encoding can take."""
        return json.dumps(self.metadata, indent=indent, allow_nan=False)


def read_contents(folder: Path) -> Contents:
    """Return what is exported of a run folder.

    Raises:
        RunFolderError: the run is damaged or missing.
        NotSupportedError: the method does not score by an inner product of embeddings.
        DataError: there is nothing to export, or a number is too large for 32 bits.
    """
    run = load_run(folder)
    recommender = run.recommender
    try:
        embeddings = recommender.embeddings
    except NotSupportedError as error:
        raise NotSupportedError(
            f"{run.model} does not score by embeddings, so it has none to export; "
            "`rankformer recommend --all --out FILE` writes its lists instead"
        ) from error
    if not (embeddings.num_users and embeddings.num_items and embeddings.users.shape[1]):
        raise DataError(f"{folder} has no users, no items or embeddings of dimension 0; there is nothing to export")
    users = VectorTable(recommender.user_ids.ids, _float32(embeddings.users))
    size = embeddings.num_items  # items that only their attributes describe have no embedding
    titles = None if recommender.titles is None else recommender.titles.slice(0, size)
    attributes = {} if recommender.items is None else recommender.items.columns
    attributes = {name: values.slice(0, size) for name, values in attributes.items()}
    items = VectorTable(recommender.item_ids.ids, _float32(embeddings.items), titles, attributes)
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "rankformer": version("rankformer"),
        "model": run.model,
        "settings": run.settings,
        "seed": run.seed,
        "model_hash": sha256_of(located(folder, MANIFEST)),
        "data_fingerprint": run.data.get("fingerprint"),
        "metric": "inner_product",
        "dimension": items.vectors.shape[1],
        "dtype": "float32",
        "num_users": len(users.ids),
        "num_items": len(items.ids),
        "user_id_type": str(users.ids.type),
        "item_id_type": str(items.ids.type),
        "titles": items.titles is not None,
    }
    return Contents(Tables(users, items), embeddings, metadata)


def _float32(values: Tensor) -> NDArray[np.float32]:
    """Return the vectors in 32 bits, which is what every target here and its readers compute in."""
    with np.errstate(over="ignore"):
        numbers = np.ascontiguousarray(values.detach().cpu().numpy(), dtype=np.float32)
    if not np.isfinite(numbers).all():
        raise DataError("an embedding has a number beyond the range of 32 bits; train with another seed or rate")
    return numbers
