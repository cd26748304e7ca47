"""Outside ids in, outside ids out."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError, NotSupportedError, UnknownIdError
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.recommender import Recommender

ITEMS = ["pear", "apple", "fig", "plum"]  # index order 0..3, deliberately not alphabetical


def make_recommender(titles=None, **changes):
    """alice has seen pear (0), bob has seen fig (2); alice scores items 4 3 2 1, bob 1 2 3 4."""
    users, items = np.array([0, 1], np.int32), np.array([0, 2], np.int32)
    history = Interactions(users, items, IdMap(pa.array(["alice", "bob"])), IdMap(pa.array(ITEMS)), item_titles=titles)
    vectors = torch.tensor([[4.0, 1.0], [3.0, 2.0], [2.0, 3.0], [1.0, 4.0]])
    arguments = {
        "scorer": Embeddings(torch.eye(2), vectors),
        "user_ids": history.user_ids,
        "item_ids": history.item_ids,
        "history": history,
    }
    return Recommender(**(arguments | changes))


def lists_of(recommendations):
    return [(row["user_id"], row["item_id"], row["score"], row["rank"]) for row in recommendations.to_dicts()]


def test_seen_items_are_left_out_and_ranks_start_at_one():
    assert lists_of(make_recommender().recommend(["bob", "alice"], k=2)) == [
        ("bob", "plum", 4.0, 1),
        ("bob", "apple", 2.0, 2),
        ("alice", "apple", 3.0, 1),
        ("alice", "fig", 2.0, 2),
    ]


def test_all_users_come_in_index_order_and_lists_shorten_when_items_run_out():
    table = make_recommender().recommend(k=100).to_arrow()
    assert table["user_id"].to_pylist() == ["alice"] * 3 + ["bob"] * 3
    assert table["rank"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert table.schema.field("score").type == pa.float32()
    assert table.schema.field("rank").type == pa.int32()


def test_include_seen_brings_the_history_back():
    assert lists_of(make_recommender().recommend(["alice"], k=1, include_seen=True)) == [("alice", "pear", 4.0, 1)]


def test_allow_and_block_lists_take_raw_ids_and_pass_over_unknown_ones():
    recommender = make_recommender()
    allowed = recommender.recommend(["alice"], allow=["fig", "plum", "kiwi"]).to_dicts()
    assert [row["item_id"] for row in allowed] == ["fig", "plum"]
    blocked = recommender.recommend(["alice"], block=["apple", "kiwi"]).to_dicts()
    assert [row["item_id"] for row in blocked] == ["fig", "plum"]
    assert len(recommender.recommend(["alice"], allow=[])) == 0
    with pytest.raises(UnknownIdError, match=r"item in block: 7 .*'pear' or 'apple'"):
        recommender.recommend(["alice"], block=[7])


def test_unknown_users_are_named_counted_and_shown_what_ids_look_like():
    with pytest.raises(UnknownIdError) as caught:
        make_recommender().recommend(["alice", "x1", "x2", "x3", "x4", 5])
    message = str(caught.value)
    assert "'x1', 'x2', 'x3', ..." in message
    assert "5 not known" in message
    assert "'alice' or 'bob'" in message
    assert "\n" not in message


def test_one_text_instead_of_a_list_is_refused_rather_than_spelt_out():
    with pytest.raises(ConfigError, match=r"write \['bob'\]"):
        make_recommender().recommend("bob")


@pytest.mark.parametrize("wrap", [tuple, np.array, pa.array])
def test_users_may_come_as_any_column_type(wrap):
    assert len(make_recommender().recommend(wrap(["bob", "alice"]), k=1)) == 2


def test_integer_ids_keep_their_type_from_numpy():
    history = Interactions.from_indices([0, 1], [0, 1], 2, 3)
    recommender = Recommender(Embeddings(torch.eye(2), torch.rand(3, 2)), history.user_ids, history.item_ids, history)
    table = recommender.recommend(np.array([1]), k=1).to_arrow()
    assert table["user_id"].to_pylist() == [1]
    assert table.schema.field("item_id").type == pa.int64()


@pytest.mark.parametrize("ask", [lambda r: r.recommend(["bob"], k=0), lambda r: r.similar_items("fig", k=0)])
def test_k_below_one_is_refused(ask):
    with pytest.raises(ConfigError, match="k >= 1"):
        ask(make_recommender())


def test_titles_follow_the_item_not_the_place():
    titles = pa.array(["Pear", None, "Fig", "Plum"])
    rows = make_recommender(titles).recommend(["bob"], k=3).to_dicts()
    assert [row["title"] for row in rows] == ["Plum", None, "Pear"]
    given = make_recommender(titles, item_titles=pa.array(list("abcd"))).recommend(["bob"], k=1)
    assert given.to_dicts()[0]["title"] == "d"


def test_similar_items_rank_by_angle_not_by_length_and_leave_out_the_item_itself():
    # Directions from item 0: item 1 the same but 100 times longer, item 2 at 45 degrees, item 3 opposite.
    items = torch.tensor([[1.0, 0.0], [100.0, 0.0], [0.1, 0.1], [-5.0, 0.0]])
    recommender = make_recommender(scorer=Embeddings(torch.eye(2), items))
    rows = recommender.similar_items("pear", k=9).to_dicts()
    assert [(row["item_id"], row["similar_item_id"], row["rank"]) for row in rows] == [
        ("pear", "apple", 1),
        ("pear", "fig", 2),
        ("pear", "plum", 3),
    ]
    np.testing.assert_allclose([row["score"] for row in rows], [1.0, 0.5**0.5, -1.0], rtol=1e-6)


def test_zero_vectors_are_similar_to_nothing_and_never_nan():
    items = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    recommender = make_recommender(scorer=Embeddings(torch.eye(2), items))
    assert [row["similar_item_id"] for row in recommender.similar_items("pear").to_dicts()] == ["fig"]
    assert len(recommender.similar_items("apple")) == 0


def test_similar_items_of_an_unknown_item_or_without_vectors_is_refused():
    with pytest.raises(UnknownIdError, match="unknown item: 'kiwi'"):
        make_recommender().similar_items("kiwi")

    class Flat:
        num_items = 4

        def scores(self, users):
            return torch.zeros(len(users), 4)

    with pytest.raises(NotSupportedError, match="Flat scores without vectors"):
        make_recommender(scorer=Flat()).similar_items("fig")


def test_parts_that_do_not_fit_together_are_refused_at_construction():
    with pytest.raises(DataError, match="3 items"):
        make_recommender(scorer=Embeddings(torch.eye(2), torch.rand(3, 2)))
    with pytest.raises(DataError, match="5 users"):
        make_recommender(scorer=Embeddings(torch.rand(5, 2), torch.rand(4, 2)))
    with pytest.raises(DataError, match="numbers its ids differently"):
        make_recommender(user_ids=IdMap(pa.array(["bob", "alice"])))
    with pytest.raises(DataError, match="1 titles"):
        make_recommender(item_titles=pa.array(["x"]))


def test_tables_agree_across_arrow_pandas_polars_and_dicts():
    recommendations = make_recommender().recommend(k=2)
    dicts = recommendations.to_dicts()
    assert len(recommendations) == len(dicts) == 4
    assert recommendations.to_pandas().to_dict("records") == dicts
    assert recommendations.to_polars().to_dicts() == dicts


def test_repr_shows_the_first_rows_and_says_how_many_are_hidden():
    history = Interactions.from_indices([], [], 6, 3)
    recommender = Recommender(
        Embeddings(torch.ones(6, 1), torch.ones(3, 1)), history.user_ids, history.item_ids, history
    )
    text = repr(recommender.recommend(k=2))
    assert text.startswith("Recommendations, 12 rows\nuser_id  item_id  score  rank\n0        0        1      1")
    assert text.endswith("... 2 more rows")
