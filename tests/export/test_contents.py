"""What is exported of a run, and what its metadata says."""

import json
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rankformer.errors import DataError, NotSupportedError
from rankformer.export import contents
from rankformer.export.contents import read_contents
from rankformer.files import sha256_of

from .conftest import DIMENSION, ITEMS, USERS, make_run, odd_items


def test_the_metadata_says_what_the_vectors_are(saved):
    ids, titles = odd_items()
    folder = saved(item_ids=ids, titles=titles, seed=3)
    metadata = read_contents(folder).metadata
    assert metadata == json.loads(json.dumps(metadata))
    assert (metadata["model"], metadata["seed"], metadata["settings"]["tau"]) == ("toy", 3, 0.4)
    assert (metadata["metric"], metadata["dimension"], metadata["dtype"]) == ("inner_product", DIMENSION, "float32")
    assert (metadata["num_users"], metadata["num_items"], metadata["titles"]) == (USERS, ITEMS, True)
    assert (metadata["user_id_type"], metadata["item_id_type"]) == ("int64", "string")
    assert metadata["model_hash"] == sha256_of(folder / "manifest.json")
    assert metadata["rankformer"] == version("rankformer")


def test_rows_are_the_runs_own(saved):
    ids, titles = odd_items()
    run = make_run(item_ids=ids, titles=titles)
    users, items = read_contents(saved(item_ids=ids, titles=titles)).tables
    assert users.ids.equals(run.recommender.user_ids.ids)
    assert users.titles is None
    assert np.array_equal(users.vectors, run.recommender.embeddings.users.numpy())
    assert items.ids.equals(ids)
    assert items.titles.equals(titles)
    assert np.array_equal(items.vectors, run.recommender.embeddings.items.numpy())


def test_vectors_of_64_bits_are_rounded_to_32(saved):
    run = make_run(dtype=torch.float64)
    assert np.array_equal(
        read_contents(saved(dtype=torch.float64)).tables.items.vectors, run.recommender.embeddings.items.float().numpy()
    )


def test_a_number_too_large_for_32_bits_is_refused(saved):
    folder = saved(vectors=[torch.full((USERS, 2), 1e300, dtype=torch.float64), torch.ones(ITEMS, 2).double()])
    with pytest.raises(DataError, match="range of 32 bits"):
        read_contents(folder)


def test_an_empty_run_is_refused(saved):
    with pytest.raises(DataError, match="nothing to export"):
        read_contents(saved(vectors=[torch.ones(USERS, 0), torch.ones(ITEMS, 0)]))


class WithoutEmbeddings:
    @property
    def embeddings(self):
        raise NotSupportedError("scores by counts")


def test_a_method_without_embeddings_is_refused(monkeypatch, tmp_path):
    run = SimpleNamespace(model="counting", recommender=WithoutEmbeddings())
    monkeypatch.setattr(contents, "load_run", lambda folder: run)
    with pytest.raises(NotSupportedError, match="counting does not score by embeddings, so it has none to export"):
        read_contents(tmp_path)
