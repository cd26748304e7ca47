"""The blend of scorers: standardized, explained, folded in, compared, stored; against the dense definition."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logs import random_log

from rankformer.errors import DataError, NotSupportedError
from rankformer.scoring.blend import BlendScorer, Member
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import WeightedSum
from rankformer.scoring.histories import Histories
from rankformer.scoring.item_matrix import DenseWeights, SparseWeights
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.stored import restore_scorer

N, M = 15, 12
LOG = random_log(N, M)
WEIGHTED = replace(LOG, weights=np.random.default_rng(1).integers(1, 5, len(LOG)).astype(np.float32))
EVERYONE = torch.arange(N)
WEIGHTS = {"graph": 0.5, "table": 0.3, "items": 0.2}


def vectors(seed, scale=1.0, dimension=4):
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(count, dimension, generator=generator) for count in (N, M)]


def graph_scorer(log=LOG):
    """Users who are sums over their histories plus something of their own."""
    users, items = vectors(1)
    rule = WeightedSum(items * 0.5, 0.5, own_embedding=True)
    return Embeddings(users, items, rule)


def item_scorer(log=LOG):
    return ItemScorer.of(DenseWeights(torch.rand(M, M, generator=torch.Generator().manual_seed(3))), log)


def scorers(log=LOG):
    return {"graph": graph_scorer(log), "table": Embeddings(*vectors(2, 40.0)), "items": item_scorer(log)}


BLEND = BlendScorer.of(scorers(), WEIGHTS)


def history_of(user, log=LOG):
    rows = log.users == user
    weights = None if log.weights is None else log.weights[rows]
    return Histories.of(np.zeros(rows.sum()), log.items[rows], 1, weights)


def dense(parts):
    """The definition, in float64: (score, weight) pairs, each standardized over the items."""
    total = torch.zeros(())
    for scores, weight in parts:
        scores = scores.double()
        total = total + weight * (scores - scores.mean(1, keepdim=True)) / scores.std(1, correction=0, keepdim=True)
    return total


def close(found, expected, tolerance=2e-5):
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


def test_scores_are_those_of_the_definition():
    expected = dense((scorer.scores(EVERYONE), WEIGHTS[name]) for name, scorer in scorers().items())
    close(BLEND.scores(EVERYONE), expected)
    some = torch.tensor([3, 3, 0])
    close(BLEND.scores(some), expected[some])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(1e-6, 1e6), st.floats(-50, 50))
def test_the_closed_form_holds_whatever_scale_and_offset_vectors_have(seed, dimension, scale, offset):
    users, items = vectors(seed, scale, dimension)
    items = items + offset * scale * torch.ones(dimension)
    found = BlendScorer((Member.of("any", Embeddings(users.double(), items.double()), 2.0),)).scores(EVERYONE)
    close(found, dense([(users.double() @ items.double().T, 2.0)]), 1e-3)


def test_a_score_is_in_standard_deviations():
    scores = BlendScorer((Member.of("table", Embeddings(*vectors(2, 40.0)), 1.0),)).scores(EVERYONE)
    close(scores.mean(1), torch.zeros(N))
    close(scores.std(1, correction=0), torch.ones(N))


def test_a_user_of_whom_a_member_says_nothing_is_scored_by_the_others():
    users, items = vectors(1)
    users[4] = 0
    blend = BlendScorer.of({"graph": Embeddings(users, items), "items": item_scorer()}, {"graph": 3.0, "items": 1.0})
    close(blend.scores(EVERYONE)[4], dense([(item_scorer().scores(EVERYONE), 1.0)])[4])


@pytest.mark.parametrize("constant", [0.0, 0.1, -7e5])
def test_a_member_that_says_the_same_of_every_item_says_nothing(constant):
    equal = {
        "vectors": Embeddings(vectors(1)[0], constant * torch.ones(M, 4)),
        "weights": ItemScorer.of(DenseWeights(constant * torch.ones(M, M)), LOG),
    }
    alone = BlendScorer.of(scorers(), WEIGHTS)
    blend = BlendScorer.of({**scorers(), **equal}, {**WEIGHTS, "vectors": 1.0, "weights": 1.0})
    close(blend.scores(EVERYONE), alone.scores(EVERYONE))
    nothing = BlendScorer.of(equal, dict.fromkeys(equal, 1.0)).scores(EVERYONE)
    assert not nothing.any()


def test_a_member_of_weight_0_is_not_kept_and_one_must_be():
    assert [member.name for member in BlendScorer.of(scorers(), {**WEIGHTS, "table": 0.0}).members] == [
        "graph",
        "items",
    ]
    with pytest.raises(DataError, match="at least one member"):
        BlendScorer.of(scorers(), dict.fromkeys(WEIGHTS, 0.0))


def test_members_of_other_sizes_are_refused():
    other = Embeddings(torch.ones(N, 2), torch.ones(M + 1, 2))
    with pytest.raises(DataError, match="differ in their users and items"):
        BlendScorer.of({**scorers(), "other": other}, {**WEIGHTS, "other": 1.0})


class TestContributions:
    @pytest.mark.parametrize("log", [LOG, WEIGHTED], ids=["plain", "weighted"])
    def test_they_add_up_to_the_score_over_the_history_and_over_members(self, log):
        blend = BlendScorer.of(scorers(log), WEIGHTS)
        scores = blend.scores(EVERYONE)
        for user in (0, 7):
            for item in (0, 5):
                parts = blend.contributions(history_of(user, log), item, user)
                assert parts.score == pytest.approx(float(scores[user, item]), abs=1e-4)
                assert parts.items.sum() + parts.user + parts.overall == pytest.approx(parts.score)
                assert sum(parts.members.values()) == pytest.approx(parts.score)
                assert list(parts.members) == list(WEIGHTS)

    def test_each_member_is_its_own_standardized_score(self):
        parts = BLEND.contributions(history_of(2), 3, 2)
        for name, scorer in scorers().items():
            expected = dense([(scorer.scores(EVERYONE), WEIGHTS[name])])[2, 3]
            assert parts.members[name] == pytest.approx(float(expected), abs=1e-4)

    def test_what_a_member_cannot_split_is_the_users_own(self):
        blend = BlendScorer.of(scorers(), {**WEIGHTS, "graph": 0.0})  # a table, and items that split all of it
        parts = blend.contributions(history_of(2), 3, 2)
        table = scorers()["table"].scores(torch.tensor([2]))[0].double()
        assert parts.user == pytest.approx(float(0.3 * (table[3] - table.mean()) / table.std(correction=0)), rel=1e-4)

    def test_those_of_a_new_user_are_of_the_members_that_fold_in(self):
        history = Histories.from_lists([[1, 5, 5, 8]])
        parts = BLEND.contributions(history, 4, None)
        assert parts.members.keys() == {"graph", "items"}
        assert parts.score == pytest.approx(
            float(BLEND.for_histories(history).scores(torch.tensor([0]))[0, 4]), abs=1e-4
        )
        assert parts.items.sum() + parts.user + parts.overall == pytest.approx(parts.score)

    def test_of_embeddings_they_are_beyond_the_average_item(self):
        blend = BlendScorer.of({"graph": graph_scorer()}, {"graph": 1.0})
        parts = [blend.contributions(history_of(2), item, 2) for item in range(M)]
        close(torch.tensor(np.mean([each.items for each in parts], axis=0)), torch.zeros(len(parts[0].items)))
        assert np.mean([each.user for each in parts]) == pytest.approx(0, abs=1e-5)

    def test_a_blend_of_tables_explains_nothing(self):
        blend = BlendScorer.of({"table": scorers()["table"]}, {"table": 1.0})
        assert not blend.can_explain
        with pytest.raises(NotSupportedError, match="cannot be explained"):
            blend.contributions(history_of(2), 3, 2)


class TestFoldIn:
    def test_members_that_can_are_blended_and_the_others_named(self):
        history = Histories.from_lists([[0, 3], [2, 7, 8]])
        assert BLEND.left_out_of_fold_in == ("table",)
        able = {name: scorers()[name].for_histories(history).scores(torch.arange(2)) for name in ("graph", "items")}
        expected = dense((scores, WEIGHTS[name]) for name, scores in able.items())
        close(BLEND.for_histories(history).scores(torch.arange(2)), expected)

    def test_with_all_members_able_none_is_left_out(self):
        blend = BlendScorer.of(scorers(), {**WEIGHTS, "table": 0.0})
        assert blend.left_out_of_fold_in == ()

    def test_with_none_able_there_is_no_fold_in(self):
        blend = BlendScorer.of({"table": scorers()["table"]}, {"table": 1.0})
        assert not blend.can_fold_in
        with pytest.raises(NotSupportedError, match="cannot score new users"):
            blend.for_histories(Histories.from_lists([[1]]))

    def test_weights_do_not_reach_a_member_that_counts_none(self):
        log, plain = WEIGHTED, LOG
        blend = BlendScorer.of({"items": item_scorer(plain)}, {"items": 1.0}, unweighted=["items"])
        weighted, unweighted = history_of(3, log), history_of(3, plain)
        zero = torch.tensor([0])
        close(blend.for_histories(weighted).scores(zero), blend.for_histories(unweighted).scores(zero))
        counting = BlendScorer.of({"items": item_scorer(log)}, {"items": 1.0})
        assert not torch.allclose(
            counting.for_histories(weighted).scores(zero), blend.for_histories(weighted).scores(zero)
        )
        parts = blend.contributions(weighted, 5, 3)
        assert parts.score == pytest.approx(float(blend.scores(torch.tensor([3]))[0, 5]), abs=1e-4)
        assert parts.items.sum() + parts.overall == pytest.approx(parts.score)
        again = stored(blend, log)
        close(again.scores(EVERYONE), blend.scores(EVERYONE))


class TestSimilarItems:
    def test_standardized_similarities_are_added(self):
        expected = torch.zeros(M, dtype=torch.float64)
        for name, scorer in scorers().items():
            values = scorer.similarities(4).double()
            values[4] = 0
            expected += WEIGHTS[name] * (values - values.mean()) / values.std(correction=0)
        others = torch.arange(M) != 4
        close(BLEND.similarities(4)[others], expected[others])

    def test_what_no_member_sees_is_similar_to_nothing(self):
        sources = torch.tensor([[1]] + [[-1]] * (M - 1))
        sparse = ItemScorer.of(SparseWeights.of_lists(sources, torch.ones(M, 1)), LOG)
        found = BlendScorer.of({"sparse": sparse}, {"sparse": 1.0}).similarities(0)
        assert torch.isfinite(found).nonzero().flatten().tolist() == [1]


class TestVectors:
    def test_all_members_side_by_side_score_exactly_as_the_blend(self):
        blend = BlendScorer.of(scorers(), {**WEIGHTS, "items": 0.0})
        joined = blend.as_embeddings()
        assert joined.users.shape == (N, 8)
        close(joined.scores(EVERYONE), blend.scores(EVERYONE), 1e-6)
        close(
            joined.scores(EVERYONE),
            dense((scorers()[name].scores(EVERYONE), WEIGHTS[name]) for name in list(WEIGHTS)[:2]),
        )

    def test_a_member_without_vectors_is_named(self):
        with pytest.raises(NotSupportedError, match=r"^items in this blend scores without embeddings"):
            BLEND.as_embeddings()

    def test_a_buffer_is_written_to(self):
        buffer = BLEND.score_buffer(N)
        assert BLEND.scores(EVERYONE, buffer) is buffer
        close(buffer, BLEND.scores(EVERYONE))


def stored(blend, log=LOG, change=lambda metadata: None):
    """The blend as a run folder gives it back, its metadata changed."""
    metadata = json.loads(json.dumps(blend.metadata()))
    change(metadata)
    return restore_scorer(metadata, blend.tensors(), log)


def test_it_survives_its_tensors_and_metadata():
    again = stored(BLEND)
    assert torch.equal(again.scores(EVERYONE), BLEND.scores(EVERYONE))
    assert again.metadata() == BLEND.metadata()
    assert again.left_out_of_fold_in == ("table",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(members={}), "must list its members"),
        (lambda m: m.update(members=[]), "at least one member"),
        (lambda m: m.update(members=m["members"] * 30), "64 at most"),
        (lambda m: m["members"].append(7), "must have name, weight"),
        (lambda m: m["members"][0].pop("weight"), "must have name, weight"),
        (lambda m: m["members"][0].update(code="import os"), "and nothing else"),
        (lambda m: m["members"][0].update(weight=-1), "expected a number above 0"),
        (lambda m: m["members"][0].update(weight=True), "expected a number above 0"),
        (lambda m: m["members"][0].update(weight=float("nan")), "expected a number above 0"),
        (lambda m: m["members"][0].update(weight=1e300), "expected a number above 0"),
        (lambda m: m["members"][0].update(weight="1"), "expected a number above 0"),
        (lambda m: m["members"][0].update(name=3), "must be named"),
        (lambda m: m["members"][0].update(counts_weights=1), "expected a boolean"),
        (lambda m: m["members"][0].update(scorer="embeddings"), "a scorer of its own"),
        (lambda m: m["members"][0]["scorer"].update(kind="pickle"), "its scorer is none of"),
        (lambda m: m["members"][0].update(scorer=dict(m)), "other than a blend"),
        (lambda m: m.update(extra=1), "has no 'extra'"),
        (lambda m: m["members"][0]["scorer"].update(extra=1), "has no 'extra'"),
    ],
)
def test_metadata_that_cannot_be_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        stored(BLEND, change=change)


@pytest.mark.parametrize("name", ["member.0.users", "member.2.weights"])
def test_a_member_whose_tensors_are_missing_is_refused(name):
    tensors = BLEND.tensors()
    del tensors[name]
    with pytest.raises((DataError, KeyError)):
        restore_scorer(BLEND.metadata(), tensors, LOG)
