"""Outside ids in, outside ids out."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.logs import random_log

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.errors import ConfigError, DataError, NotSupportedError, UnknownIdError
from rankformer.evaluation.evaluator import evaluate
from rankformer.scoring.base import Contributions, Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import WeightedSum
from rankformer.scoring.item_matrix import DenseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.top_k import top_k, top_k_reference

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


class Flat(Scorer):
    """The least that a scorer is: scores, all of them 0."""

    kind = "flat"
    num_users = num_items = None

    def __init__(self, num_users, num_items):
        self.num_users, self.num_items = num_users, num_items

    def scores(self, users, out=None):
        return torch.zeros(len(users), self.num_items)

    def is_finite(self):
        return True

    def cpu(self):
        return self

    def tensors(self):
        return {}

    def metadata(self):
        return {"kind": self.kind}

    @classmethod
    def restore(cls, tensors, metadata, history):
        return cls(history.num_users, history.num_items)


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


def test_allow_and_block_lists_take_raw_ids_and_ignore_unknown_ones():
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


def test_one_string_instead_of_a_list_is_refused_rather_than_spelt_out():
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


def test_titles_follow_the_item_not_the_rank():
    titles = pa.array(["Pear", None, "Fig", "Plum"])
    rows = make_recommender(titles).recommend(["bob"], k=3).to_dicts()
    assert [row["title"] for row in rows] == ["Plum", None, "Pear"]
    plain = make_recommender(titles)
    given = plain.with_items(Items(plain.item_ids, titles=pa.array(list("abcd")))).recommend(["bob"], k=1)
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


def test_zero_embeddings_are_similar_to_nothing_and_never_nan():
    items = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    recommender = make_recommender(scorer=Embeddings(torch.eye(2), items))
    assert [row["similar_item_id"] for row in recommender.similar_items("pear").to_dicts()] == ["fig"]
    assert len(recommender.similar_items("apple")) == 0


def test_similar_items_of_an_unknown_item_or_without_embeddings_is_refused():
    with pytest.raises(UnknownIdError, match="unknown item: 'kiwi'"):
        make_recommender().similar_items("kiwi")
    flat = Flat(2, 4)
    with pytest.raises(NotSupportedError, match="Flat has neither item embeddings nor item weights"):
        make_recommender(scorer=flat).similar_items("fig")
    with pytest.raises(NotSupportedError, match="Flat scores without embeddings"):
        _ = make_recommender(scorer=flat).embeddings
    assert not make_recommender(scorer=flat).can_find_similar


def test_parts_that_do_not_fit_together_are_refused_at_construction():
    with pytest.raises(DataError, match="3 items"):
        make_recommender(scorer=Embeddings(torch.eye(2), torch.rand(3, 2)))
    with pytest.raises(DataError, match="5 users"):
        make_recommender(scorer=Embeddings(torch.rand(5, 2), torch.rand(4, 2)))
    with pytest.raises(DataError, match="numbers its ids differently"):
        make_recommender(user_ids=IdMap(pa.array(["bob", "alice"])))
    with pytest.raises(DataError, match="1 titles"):
        make_recommender(pa.array(["x"]))


def test_tables_agree_across_arrow_pandas_polars_and_dicts():
    recommendations = make_recommender().recommend(k=2)
    dicts = recommendations.to_dicts()
    assert len(recommendations) == len(dicts) == 4
    assert recommendations.to_pandas().to_dict("records") == dicts
    assert recommendations.to_polars().to_dicts() == dicts


def test_repr_shows_the_first_rows_and_says_how_many_are_hidden():
    history = Interactions.from_indices(range(6), [2] * 6, 6, 3)
    recommender = Recommender(
        Embeddings(torch.ones(6, 1), torch.ones(3, 1)), history.user_ids, history.item_ids, history
    )
    text = repr(recommender.recommend(k=2))
    assert text.startswith("Recommendations, 12 rows\nuser_id  item_id  score  rank\n0        0        1      1")
    assert text.endswith("... 2 more rows")


def folding_recommender():
    """15 users named u0.., 12 items named i0.., with a fold-in rule; some items were seen twice."""
    log = random_log()
    twice = np.concatenate([np.arange(len(log)), np.arange(0, len(log), 7)])
    ids = IdMap(pa.array([f"u{user}" for user in range(15)])), IdMap(pa.array([f"i{item}" for item in range(12)]))
    history = Interactions(log.users[twice], log.items[twice], *ids)
    generator = torch.Generator().manual_seed(0)
    users, items = torch.randn(15, 4, generator=generator), torch.randn(12, 4, generator=generator)
    return Recommender(Embeddings(users, items, WeightedSum(items, 0.5, own_embedding=True)), *ids, history)


FILTERS = [{}, {"include_seen": True}, {"allow": [2, 3, 5, 7]}, {"block": [0, 1], "allow": [1, 2, 3]}]


def by_name(filters):
    return {
        name: [f"i{item}" for item in value] if name != "include_seen" else value for name, value in filters.items()
    }


def by_index(filters, k):
    return RankingOptions(k, **{n: tuple(v) if n != "include_seen" else v for n, v in filters.items()})


def flat_lists(lists):
    """(row, item name, score) of every item of lists by index."""
    return [
        (row, f"i{item}", score)
        for row, (items, scores) in enumerate(zip(lists.items.tolist(), lists.scores.tolist(), strict=True))
        for item, score in zip(items, scores, strict=True)
        if item >= 0
    ]


@pytest.mark.parametrize("filters", FILTERS)
def test_lists_by_index_equal_those_by_raw_id(filters):
    recommender, users = folding_recommender(), [3, 0, 3, 14]
    rows = recommender.recommend([f"u{user}" for user in users], 4, **by_name(filters)).to_dicts()
    for asked in (users, torch.tensor(users)):
        lists = recommender.rank(asked, by_index(filters, 4))
        assert lists.items.shape == (4, 4)
        found = [(f"u{users[row]}", item, score) for row, item, score in flat_lists(lists)]
        assert found == [(row["user_id"], row["item_id"], row["score"]) for row in rows]


@pytest.mark.parametrize("filters", FILTERS)
def test_lists_of_new_users_by_index_equal_those_by_raw_id(filters):
    recommender, histories = folding_recommender(), {"a": [0, 2, 2], "b": [], "c": [11]}
    named = {name: [f"i{item}" for item in items] for name, items in histories.items()}
    answer = recommender.recommend_histories(named, 4, **by_name(filters))
    lists, fell_back = recommender.rank_histories(list(histories.values()), by_index(filters, 4))
    assert fell_back == [False, True, False]
    assert answer.fallbacks == ["b"]
    found = [("abc"[row], item, score) for row, item, score in flat_lists(lists)]
    assert found == [(row["user_id"], row["item_id"], row["score"]) for row in answer.to_dicts()]


def test_similar_items_by_index_equal_those_by_raw_id():
    recommender = folding_recommender()
    for item in (0, 11):
        rows = recommender.similar_items(f"i{item}", 5).to_dicts()
        found = [(name, score) for _, name, score in flat_lists(recommender.rank_similar(item, 5))]
        assert found == [(row["similar_item_id"], row["score"]) for row in rows]
        assert f"i{item}" not in dict(found)


def test_explanations_by_index_equal_those_by_raw_id():
    recommender = folding_recommender()
    history = recommender.history_of(3)
    named = [f"i{item}" for item in history]
    pairs = [
        (recommender.explain_index(5, user=3), recommender.explain("u3", "i5")),
        (recommender.explain_index(5, history=history), recommender.explain(item="i5", history=named)),
        (recommender.explain_index(5, history=[4, 4]), recommender.explain(item="i5", history=["i4", "none", "i4"])),
    ]
    for by_index, by_id in pairs:
        assert by_id.score == by_index.score
        found = [(f"i{reason.item_id}", reason.contribution) for reason in by_index.reasons]
        assert found == [(reason.item_id, reason.contribution) for reason in by_id.reasons]
        assert by_id.user_contribution == by_index.user_contribution
        assert by_id.global_contribution == by_index.global_contribution
        assert sum(dict(found).values()) + by_index.user_contribution == pytest.approx(by_index.score)
    assert pairs[0][0].user_contribution != 0.0
    assert pairs[1][0].user_contribution == 0.0
    assert (pairs[0][1].user_id, pairs[1][1].user_id) == ("u3", None)


def test_the_history_of_a_user_is_in_the_order_of_the_log_with_duplicates():
    recommender = folding_recommender()
    for user in range(15):
        expected = recommender.history.items[recommender.history.users == user]
        assert recommender.history_of(user).tolist() == expected.tolist()


@pytest.mark.parametrize("asked", [{}, {"user": "u1"}, {"user": "u1", "history": ["i2"]}, {"item": "i1"}])
def test_an_explanation_needs_an_item_and_a_user_or_a_history(asked):
    with pytest.raises(ConfigError, match="needs an item, and a user, a history or both"):
        folding_recommender().explain(**asked)


class Sum(Flat):
    """Two scorers added: a combination is a scorer like any other."""

    kind = "sum"
    can_fold_in = can_explain = can_compare_items = True

    def __init__(self, *parts):
        super().__init__(parts[0].num_users, parts[0].num_items)
        self.parts = parts

    def scores(self, users, out=None):
        return sum(part.scores(users) for part in self.parts)

    def for_histories(self, histories):
        return Sum(*(part.for_histories(histories) for part in self.parts))

    def contributions(self, history, item, user):
        score, items, own, overall, _ = zip(
            *(part.contributions(history, item, user) for part in self.parts), strict=True
        )
        return Contributions(sum(score), sum(items), sum(own), sum(overall))

    def similarities(self, item):
        return sum(part.similarities(item) for part in self.parts)


def test_a_sum_of_scorers_recommends_folds_in_explains_and_is_evaluated():
    plain = folding_recommender()
    weights = ItemScorer.of(
        DenseWeights(torch.randn(12, 12, generator=torch.Generator().manual_seed(1))), plain.history
    )
    scorer = Sum(plain.scorer, weights)
    recommender = Recommender(scorer, plain.user_ids, plain.item_ids, plain.history)
    everyone = torch.arange(15)
    expected = plain.scorer.scores(everyone) + weights.scores(everyone)
    lists, reference = (find(scorer, everyone, 5, seen=plain.seen) for find in (top_k, top_k_reference))
    assert torch.equal(lists.items, reference.items)
    assert torch.equal(lists.scores, expected.gather(1, lists.items))
    found = recommender.recommend(k=5).to_dicts()
    assert [int(row["item_id"][1:]) for row in found] == lists.items.flatten().tolist()
    for user in (0, 7):
        parts = recommender.explain(f"u{user}", "i3")
        assert parts.score == pytest.approx(float(expected[user, 3]), abs=1e-5)
        reasons = sum(reason.contribution for reason in parts.reasons)
        assert reasons + parts.user_contribution + parts.global_contribution == pytest.approx(parts.score, abs=1e-5)
    assert len(recommender.recommend_histories({"new": ["i1", "i2"]}, k=3)) == 3
    assert len(recommender.similar_items("i1", k=3)) == 3
    second = lists.items[:, 1].numpy().astype(np.int32)
    test = Interactions(everyone.numpy().astype(np.int32), second, plain.user_ids, plain.item_ids)
    assert evaluate(recommender, test, metrics="mrr@12").metrics == {"mrr@12": 0.5}


class TestUsersTheModelKnowsNothingAbout:
    """Users 2 and 3 have no interaction that was fitted; of user 2 one is known all the same."""

    @pytest.fixture
    def recommender(self):
        fitted = Interactions.from_indices([0, 1, 1], [3, 3, 1], 4, 5)
        known = Interactions.from_indices([0, 1, 1, 2, 0], [3, 3, 1, 3, 4], 4, 5)
        zeros = Embeddings(torch.zeros(4, 2), torch.zeros(5, 2))  # the scores an item method gives an empty history
        return Recommender(zeros, fitted.user_ids, fitted.item_ids, fitted, known=known)

    def test_popularity_answers_and_the_result_says_so(self, recommender):
        lists = recommender.recommend([2, 3], k=3)
        assert lists.fallbacks == [2, 3]
        assert lists.table["item_id"].to_pylist() == [1, 0, 2, 3, 1, 0]
        assert lists.table["score"].to_pylist()[:2] == [1.0, 0.0]
        assert recommender.recommend([0, 1], k=3).fallbacks == []

    def test_every_known_interaction_is_left_out_unless_the_mask_says_otherwise(self, recommender):
        assert recommender.recommend([0], k=5).table["item_id"].to_pylist() == [0, 1, 2]
        assert recommender.recommend([0], k=5, mask="train").table["item_id"].to_pylist() == [0, 1, 2, 4]
        assert recommender.history_of(0).tolist() == [3, 4]
        with pytest.raises(ConfigError, match="mask='valid': expected known or train"):
            recommender.recommend([0], mask="valid")

    def test_unknown_users_are_answered_where_that_is_asked_for(self, recommender):
        with pytest.raises(UnknownIdError, match=r"unknown user: 9 .*--fallback popularity"):
            recommender.recommend([0, 9])
        lists = recommender.recommend([9, 0, 2], k=2, fallback="popularity")
        assert lists.fallbacks == [9, 2]
        assert lists.table["user_id"].to_pylist() == [9, 9, 0, 0, 2, 2]
        assert lists.table["item_id"].to_pylist() == [3, 1, 0, 1, 1, 0]
        assert recommender.recommend(["nobody"], k=1, fallback="popularity").table["user_id"].to_pylist() == ["nobody"]

    def test_without_a_fallback_their_lists_are_empty(self, recommender):
        lists = recommender.recommend(k=2, fallback="none")
        assert set(lists.table["user_id"].to_pylist()) == {0, 1}
        assert lists.fallbacks == []
        with pytest.raises(UnknownIdError):
            recommender.recommend([9], fallback="none")
        with pytest.raises(ConfigError, match="fallback='random': expected popularity or none"):
            recommender.recommend([0], fallback="random")

    def test_filters_hold_for_them_too(self, recommender):
        lists = recommender.recommend([2, 9], k=5, allow=[3, 4, 1], block=[4], fallback="popularity")
        assert lists.table["item_id"].to_pylist() == [1, 3, 1]

    def test_there_is_nothing_to_explain(self):
        fitted = Interactions.from_indices([0], [0], 2, 2)
        scorer = ItemScorer.of(DenseWeights(torch.ones(2, 2)), fitted)
        recommender = Recommender(scorer, fitted.user_ids, fitted.item_ids, fitted)
        assert recommender.explain(0, 1).score == 1.0
        with pytest.raises(UnknownIdError, match="user 1 has no interaction the model was fitted on"):
            recommender.explain(1, 1)
