"""Runs to export."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.conftest import needed as needed

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.runs.saved import Run, save_run
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

USERS, ITEMS, DIMENSION = 130, 45, 8
# Everything that COPY, SQL, psql or a careless reader could trip over; the rest of the items have plain names.
ODD_TEXTS = [
    "",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\\",
    "\\\\",
    "\\N",
    "\\.",
    "\\t",
    "a\tb\nc\\d\re",
    "NULL",
    "'; DROP TABLE rankformer_items; --",
    "\\! touch owned",
    ":variable",
    "$1 %s {x}",
    '"quoted", {1,2}',
    "\x01\x0b\x0c\x1b[31m\x7f",
    "\x85\u2028\u2029",
    "é",
    "e\u0301",
    "日本\U0001f600",
    "<b>&amp;",
]


def odd_items():
    """Return ids with every odd text, and titles with some, one missing."""
    ids = pa.array([*ODD_TEXTS, *[f"item-{number}" for number in range(ITEMS - len(ODD_TEXTS))]])
    titles = pa.array([None, *reversed(ids.to_pylist()[1:])])
    return ids, titles


def make_run(user_ids=None, item_ids=None, titles=None, dimension=DIMENSION, dtype=torch.float32, seed=0, vectors=None):
    user_map = IdMap(pa.array(range(USERS)) if user_ids is None else user_ids)
    item_map = IdMap(pa.array([f"item-{number}" for number in range(ITEMS)]) if item_ids is None else item_ids)
    n, m = len(user_map), len(item_map)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    pairs = rng.integers(0, n, 60).astype(np.int32), rng.integers(0, m, 60).astype(np.int32)
    history = Interactions(*pairs, user_map, item_map, item_titles=titles, name="log")
    if vectors is None:
        vectors = [torch.randn(size, dimension, generator=generator, dtype=dtype) for size in (n, m)]
    recommender = Recommender(Embeddings(*vectors), user_map, item_map, history)
    settings = {"tau": 0.4, "note": "it's ☃\n\\ $$"}
    return Run("toy", settings, seed, recommender, data={"fingerprint": "f" * 64}, versions={"rankformer": "0"})


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a run made by `make_run` and returns its folder."""

    def save(**changes):
        save_run(tmp_path / "run", make_run(**changes))
        return tmp_path / "run"

    return save
