"""What is exported of a run, and what its card says."""

import json
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.errors import DataError, NotSupportedError
from rankformer.export import contents
from rankformer.export.contents import read_contents
from rankformer.files import sha256_of
from rankformer.scoring.recommender import Recommender

from .conftest import ITEMS, USERS, WIDTH, make_run, odd_items


def test_the_card_says_what_the_vectors_are(saved):
    ids, titles = odd_items()
    folder = saved(item_ids=ids, titles=titles, seed=3)
    card = read_contents(folder).card
    assert card == json.loads(json.dumps(card))
    assert (card["model"], card["seed"], card["settings"]["tau"]) == ("toy", 3, 0.4)
    assert (card["metric"], card["width"], card["dtype"]) == ("inner_product", WIDTH, "float32")
    assert (card["num_users"], card["num_items"], card["titles"]) == (USERS, ITEMS, True)
    assert (card["user_id_type"], card["item_id_type"]) == ("int64", "string")
    assert (card["model_hash"], card["rankformer"]) == (sha256_of(folder / "manifest.json"), version("rankformer"))


def test_rows_are_the_runs_own(saved):
    ids, titles = odd_items()
    run = make_run(item_ids=ids, titles=titles)
    users, items = read_contents(saved(item_ids=ids, titles=titles)).tables
    assert users.ids.equals(run.recommender.user_ids.ids)
    assert users.titles is None
    assert np.array_equal(users.vectors, run.recommender.scorer.users.numpy())
    assert items.ids.equals(ids)
    assert items.titles.equals(titles)
    assert np.array_equal(items.vectors, run.recommender.scorer.items.numpy())


def test_vectors_of_64_bits_are_rounded_to_32(saved):
    run = make_run(dtype=torch.float64)
    assert np.array_equal(
        read_contents(saved(dtype=torch.float64)).tables.items.vectors, run.recommender.scorer.items.float().numpy()
    )


def test_a_number_too_large_for_32_bits_is_refused(saved):
    folder = saved(vectors=[torch.full((USERS, 2), 1e300, dtype=torch.float64), torch.ones(ITEMS, 2).double()])
    with pytest.raises(DataError, match="range of 32 bits"):
        read_contents(folder)


def test_an_empty_run_is_refused(saved):
    with pytest.raises(DataError, match="nothing to export"):
        read_contents(saved(vectors=[torch.ones(USERS, 0), torch.ones(ITEMS, 0)]))


class Counts:
    """Scores without vectors."""

    num_items = 2

    def scores(self, users):
        return torch.ones(len(users), 2)


def test_a_method_without_vectors_is_refused(saved, monkeypatch):
    folder, run = saved(), make_run(user_ids=pa.array([1]), item_ids=pa.array([1, 2]))
    history = run.recommender.history
    scored = Recommender(Counts(), IdMap(pa.array([1])), IdMap(pa.array([1, 2])), history)
    monkeypatch.setattr(contents, "load_run", lambda folder: type(run)("counting", {}, 0, scored))
    with pytest.raises(NotSupportedError, match="counting does not score by vectors"):
        read_contents(folder)
