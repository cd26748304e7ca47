"""Lists with attributes, filters, limits and boosts, in raw ids."""

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer import Items
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError, FilterError, UnknownIdError
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

M = 40


@pytest.fixture
def recommender():
    rng = np.random.default_rng(0)
    history = Interactions.from_indices(rng.integers(0, 6, M + 20), [*range(M), *rng.integers(0, M, 20)], 6, M)
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(6, 4, generator=generator), torch.randn(M, 4, generator=generator)
    plain = Recommender(Embeddings(*vectors), history.user_ids, history.item_ids, history)
    table = {"id": list(range(M)), "brand": [f"b{i % 3}" for i in range(M)], "price": [float(i) for i in range(M)]}
    return plain.with_items(Items.from_arrow(pa.table({**table, "score": ["x"] * M})))


def whole_list(recommender, user):
    return recommender.recommend([user], M).to_dicts()


def test_attributes_are_columns_of_the_answer(recommender):
    rows = recommender.recommend([0], 3).to_dicts()
    assert all(row["brand"] == f"b{row['item_id'] % 3}" and row["price"] == row["item_id"] for row in rows)
    assert rows[0]["item.score"] == "x"  # an attribute does not take the place of the score
    assert isinstance(rows[0]["score"], float)


def test_where_leaves_the_rest_of_the_ranking_as_it_was(recommender):
    for user in range(6):
        kept = [row["item_id"] for row in whole_list(recommender, user) if row["brand"] == "b1" and row["price"] < 30]
        found = recommender.recommend([user], 5, where="brand = 'b1' and price < 30").to_dicts()
        assert [row["item_id"] for row in found] == kept[:5]
        similar = [row["similar_item_id"] for row in recommender.similar_items(user, M).to_dicts()]
        found = recommender.similar_items(user, 5, where="brand = 'b1'", block=similar[:1]).to_dicts()
        assert [row["similar_item_id"] for row in found] == [item for item in similar[1:] if item % 3 == 1][:5]


def test_at_most_and_boost(recommender):
    for user in range(6):
        expected, held = [], {}
        for row in whole_list(recommender, user):
            if held.get(row["brand"], 0) < 2:
                held[row["brand"]] = held.get(row["brand"], 0) + 1
                expected.append(row["item_id"])
        found = recommender.recommend([user], 10, at_most={"brand": 2}).to_dicts()
        assert [row["item_id"] for row in found] == expected  # six: no brand is left
        scores = recommender.scorer.scores(torch.tensor([user]))[0].double()
        moved = scores.clone()
        moved[torch.arange(M) % 3 == 0] += 2 * scores.std(correction=0)
        moved[torch.arange(M) > 35] -= 3 * scores.std(correction=0)
        moved[recommender.history_of(user)] = float("-inf")
        found = recommender.recommend([user], 8, boost={"brand = 'b0'": 2, "price > 35": -3}).to_dicts()
        assert [row["item_id"] for row in found] == moved.argsort(descending=True)[:8].tolist()


def test_named_sets_filter_as_attributes(recommender):
    named = recommender.with_sets({"available": [1, 2, 3, 99]})
    found = named.recommend(None, 10, include_seen=True, where="available and not price = 2").to_arrow()
    assert set(found["item_id"].to_pylist()) == {1, 3}
    bare = Recommender(recommender.scorer, recommender.user_ids, recommender.item_ids, recommender.history)
    assert set(
        bare.with_sets({"a": [5]}).recommend([0], include_seen=True, where="a").to_arrow()["item_id"].to_pylist()
    ) == {5}


def test_new_users_get_filters_too_also_when_popularity_answers(recommender):
    from rankformer.scoring.fold_in import WeightedSum

    folding = Embeddings(recommender.scorer.users, recommender.scorer.items, WeightedSum(recommender.scorer.items, 1.0))
    able = Recommender(
        folding, recommender.user_ids, recommender.item_ids, recommender.history, items=recommender.items
    )
    found = able.recommend_histories({"a": [1, 2], "nobody": []}, 5, where="brand = 'b2'", at_most={"price": 1})
    assert {row["item_id"] % 3 for row in found.to_dicts()} == {2}
    assert found.fallbacks == ["nobody"]


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        ({"where": "colour = 'red'"}, FilterError, "no column 'colour' at position 1; there are cold, item_id, brand"),
        ({"at_most": {"colour": 2}}, FilterError, "at_most 'colour': no such attribute; expected one of cold, item_id"),
        ({"at_most": {"brand": 0}}, ConfigError, "expected an integer from 1"),
        ({"boost": {"brand = 'b1'": float("nan")}}, ConfigError, "expected a finite number"),
        ({"boost": {"brand": 1}}, FilterError, "'brand' is no boolean"),
        ({"allow": ["none"]}, UnknownIdError, "unknown item in allow"),
    ],
)
def test_wrong_filters(recommender, filters, error, message):
    with pytest.raises(error, match=message):
        recommender.recommend([0], 3, **filters)


def test_items_in_another_order_are_refused(recommender):
    items = Items.from_arrow(pa.table({"id": list(range(M))[::-1]}))
    with pytest.raises(DataError, match="not in the order of the model's"):
        Recommender(recommender.scorer, recommender.user_ids, recommender.item_ids, recommender.history, items=items)


def test_a_copy_answers_alike_after_filters_were_used(recommender):
    """As libraries copy and pickle the models that they are given."""
    expected = recommender.recommend([0], 5, where="brand = 'b1'").to_dicts()
    assert copy.deepcopy(recommender).recommend([0], 5, where="brand = 'b1'").to_dicts() == expected
    assert pickle.dumps(recommender)
