"""Item-kNN against its equations, one pair of items at a time."""

import numpy as np
import pytest
import torch
from tests.repeated_logs import repeated_log

from rankformer.data.interactions import Interactions
from rankformer.models.item_knn import ItemKNN

pytestmark = pytest.mark.usefixtures("one_thread")

LOG = repeated_log(25, 14, 120, repeats=20)


def brute_force(log, neighbours, shrinkage, asymmetry, user_power, count):
    """The full W, by loops."""
    x = np.zeros((log.num_users, log.num_items))
    np.add.at(x, (log.users, log.items), 1)
    x = x if count else (x > 0).astype(float)
    sizes = np.maximum(x.sum(1), 1)
    together = np.array([[np.sum(x[:, j] * x[:, i] / sizes**user_power) for i in range(x.shape[1])] for j in range(14)])
    weights = np.zeros_like(together)
    for i in range(x.shape[1]):
        found = []
        for j in range(x.shape[1]):
            if i != j and together[j, i] > 0:
                norm = together[j, j] ** asymmetry * together[i, i] ** (1 - asymmetry)
                found.append((-together[j, i] / (norm + shrinkage), j))
        for negative, j in sorted(found)[:neighbours]:
            weights[j, i] = -negative
    return x, weights


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"neighbours": 3},
        {"neighbours": 3, "shrinkage": 0.0},
        {"neighbours": 5, "asymmetry": 1.0},
        {"neighbours": 5, "asymmetry": 0.2, "user_power": 1.0},
        {"neighbours": 4, "duplicates": "count", "user_power": 0.5},
    ],
)
def test_scores_are_those_of_the_equations(knobs):
    settings = {"neighbours": 100, "shrinkage": 10.0, "asymmetry": 0.5, "user_power": 0.0, **knobs}
    count = settings.pop("duplicates", "once") == "count"
    x, weights = brute_force(LOG, count=count, **settings)
    scorer = ItemKNN(**knobs).fit(LOG).recommender.scorer
    stored = np.stack([scorer.matrix.column(item) for item in range(14)], axis=1)
    np.testing.assert_allclose(stored, weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scorer.scores(torch.arange(25)).numpy(), x @ weights, rtol=1e-5, atol=1e-6)


def test_ties_go_to_the_lower_item():
    """Items 1, 2 and 3 are bought by the same users as item 0; two neighbours are kept."""
    pairs = [(u, i) for u in range(4) for i in range(4)]
    users, items = np.array(pairs).T
    model = ItemKNN(neighbours=2).fit(Interactions.from_indices(users, items))
    column = model.recommender.scorer.matrix.column(0)
    assert np.flatnonzero(column).tolist() == [1, 2]
    assert model.similar_items(0, k=3).table["similar_item_id"].to_pylist() == [1, 2]


def test_no_item_is_its_neighbour_and_one_without_interactions_has_none():
    weights = ItemKNN(neighbours=3).fit(LOG).recommender.scorer.matrix
    lonely = set(range(14)) - set(LOG.items.tolist())
    assert lonely
    for item in range(14):
        column = weights.column(item)
        assert column[item] == 0
        assert np.count_nonzero(column) <= 3
        assert not column[sorted(lonely)].any()
        assert item not in lonely or not column.any()
