"""Runs of every kind of scorer, served: what they can do is what they do."""

import numpy as np
import pytest

from rankformer import EASE, GFCF, IALS, Interactions, ItemKNN, MatrixFactorization
from rankformer.scoring.options import RankingOptions
from rankformer.serving.model import load_served_model

KINDS = {
    "item-knn": (ItemKNN(neighbours=3), True),
    "ease": (EASE(regularization=1, keep=None), True),
    "ials": (IALS(embedding_dim=3, weight=5, regularization=1), True),
    "gf-cf": (GFCF(factors=3), True),
    "mf": (MatrixFactorization(embedding_dim=3, epochs=2), False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_any_kind_is_served_and_says_what_it_can(kind, tmp_path):
    pairs = [(u, i) for u in range(12) for i in range(8) if (u + i) % 3]
    users, items = np.array(pairs).T
    model, by_history = KINDS[kind]
    model.fit(Interactions.from_indices(users, items, 13, 8)).save(tmp_path / "run")
    served = load_served_model(tmp_path / "run")  # asks one question of each kind that it says it can answer
    assert served.can == {"fold_in": by_history, "explain": by_history, "similar": True}
    lists = served.lists([3, 12], RankingOptions(k=4))
    expected = model.recommend([3, 12], k=4).to_dicts()
    assert [entry["item_id"] for entries in lists for entry in entries] == [row["item_id"] for row in expected]
