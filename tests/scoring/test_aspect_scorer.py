"""Scores of users and items of several latents, pair by pair, and users from their histories."""

import math

import pytest
import torch

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, NotSupportedError
from rankformer.scoring import aspect_scorer
from rankformer.scoring.aspect_scorer import AspectScorer, AspectTensors
from rankformer.scoring.histories import Histories
from rankformer.scoring.recommender import Recommender

A, N, M, D, H, Q = 2, 3, 70, 3, 4, 5
LOG = Interactions.from_indices([0, 0, 1, 0], [0, 1, 2, 0], N, M)  # user 0 has item 0 twice; user 2 has nothing


def parts_of(seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = [(A, N, D), (A, M, D), (A, M), (Q, D), (Q,), (Q, D), (Q,), (A, M), (M, H), (H,), (D, H), (D,)]
    parts = AspectTensors(*(torch.randn(*size, generator=generator) for size in sizes))
    return parts._replace(attention=parts.attention.softmax(0), encoder_attention=parts.encoder_attention.softmax(0))


def score_of(parts, user_latents, item, bounded=True):
    """One score by the formula, one aspect after the other."""
    total = 0.0
    for a in range(A):
        mu_u, mu_i = user_latents[a], parts.items[a, item]
        f_u = torch.tanh(parts.user_weight @ mu_u + parts.user_bias)
        f_i = torch.tanh(parts.item_weight @ mu_i + parts.item_bias)
        logit = float(mu_u @ mu_i) + math.tanh(float(f_u @ f_i))
        total += float(parts.attention[a, item]) * (1 / (1 + math.exp(-logit)) if bounded else logit)
    return total


@pytest.mark.parametrize("entries", [1, 2**18])
@pytest.mark.parametrize("bounded", [True, False])
def test_scores_are_the_formula_pair_by_pair(monkeypatch, bounded, entries):
    monkeypatch.setattr(aspect_scorer, "_ENTRIES_AT_ONCE", entries)
    parts = parts_of()
    scores = AspectScorer(parts, bounded=bounded).scores(torch.tensor([2, 0, 2]))
    assert scores.shape == (3, M)
    torch.testing.assert_close(scores[0], scores[2])
    for row, user in enumerate([2, 0]):
        for item in (0, 1, 63, 64, M - 1):
            expected = score_of(parts, parts.users[:, user], item, bounded)
            assert scores[row, item].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("by_root", [False, True])
def test_a_history_is_encoded_with_each_item_once(by_root):
    parts, scale = parts_of(), 0.5**0.5 if by_root else 1.0
    histories = Histories(torch.tensor([0, 0, 0, 2]), torch.tensor([5, 7, 5, 69]), 3)
    users = AspectScorer(parts, by_root=by_root).for_histories(histories).parts.users
    for a in range(A):
        w, t = parts.encoder_attention[a], parts.encoder_table
        hidden = torch.tanh(scale * (w[5] * t[5] + w[7] * t[7]) + parts.encoder_bias)
        torch.testing.assert_close(users[a, 0], parts.mean_weight @ hidden + parts.mean_bias)
        hidden = torch.tanh(w[69] * t[69] + parts.encoder_bias)
        torch.testing.assert_close(users[a, 2], parts.mean_weight @ hidden + parts.mean_bias)
    assert not users[:, 1].any()  # no interactions: no latents, as for a training user without any


def test_the_recommender_folds_in_compares_items_and_does_not_explain():
    parts = parts_of()
    parts.items[:, 3] = 2 * parts.items[:, 9]
    recommender = Recommender(AspectScorer(parts), LOG.user_ids, LOG.item_ids, LOG)
    assert recommender.can_fold_in
    assert recommender.can_find_similar
    assert not recommender.can_explain
    found = recommender.recommend_histories({"new": [5, 7], "nobody": []}, k=M)
    assert found.fallbacks == ["nobody"]
    rows = [row for row in found.to_dicts() if row["user_id"] == "new"]
    assert {row["item_id"] for row in rows} == set(range(M)) - {5, 7}
    [similar] = recommender.similar_items(9, k=1).to_dicts()
    assert similar["similar_item_id"] == 3
    assert similar["score"] == pytest.approx(1)
    with pytest.raises(NotSupportedError, match="cannot be explained"):
        recommender.explain(0, 1)
    with pytest.raises(NotSupportedError, match="scores without embeddings"):
        _ = recommender.embeddings


def test_tensors_and_metadata_are_the_whole_scorer():
    scorer = AspectScorer(parts_of(), "relu", False, True)
    again = AspectScorer.restore(scorer.tensors(), scorer.metadata(), LOG)
    everyone = torch.arange(N)
    assert torch.equal(again.scores(everyone), scorer.scores(everyone))
    assert (again.activation, again.bounded, again.by_root) == ("relu", False, True)
    older = {name: value for name, value in scorer.metadata().items() if name != "by_root"}
    assert not AspectScorer.restore(scorer.tensors(), older, LOG).by_root


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("users", torch.zeros(N, D), "need three dimensions"),
        ("users", torch.zeros(A, N + 1, D), r"has \(4, 70\) users and items, its history \(3, 70\)"),
        ("items", torch.zeros(A, M, D + 1), r"items has shape \(2, 70, 4\); expected \(2, 70, 3\)"),
        ("attention", torch.zeros(M, A), "attention has shape"),
        ("mean_bias", torch.full((D,), float("nan")), "mean_bias must hold finite numbers"),
        (
            "encoder_table",
            torch.zeros(M, H, dtype=torch.float64),
            "encoder_table must hold finite numbers of type float32",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_rejected_by_name(name, value, message):
    scorer = AspectScorer(parts_of())
    with pytest.raises(DataError, match=message):
        AspectScorer.restore({**scorer.tensors(), name: value}, scorer.metadata(), LOG)


@pytest.mark.parametrize("change", [{"activation": "exec"}, {"bounded": 1}, {"activation": None}, {"by_root": 1}])
def test_metadata_that_cannot_be_is_rejected(change):
    scorer = AspectScorer(parts_of())
    with pytest.raises(DataError, match="must say its link, and an activation among tanh"):
        AspectScorer.restore(scorer.tensors(), {**scorer.metadata(), **change}, LOG)


def test_a_number_that_is_not_finite_is_noticed():
    parts = parts_of()
    assert AspectScorer(parts).is_finite()
    parts.items[0, 0, 0] = float("inf")
    assert not AspectScorer(parts).is_finite()
