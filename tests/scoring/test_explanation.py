"""Scores as sums over the history, and lists for new users."""

import json

import numpy as np
import pytest
import torch

from rankformer import Interactions, LightGCN, MatrixFactorization, Popularity, Rankformer, load_model
from rankformer.errors import ConfigError, NotSupportedError, RunFolderError, UnknownIdError
from rankformer.runs.checksums import checksummed_json, read_checksummed_json


@pytest.fixture(scope="module")
def data():
    """20 users x 12 items in two tastes, with some duplicates; string ids."""
    pairs = [(u, i) for u in range(20) for i in range(12) if (u + i) % 2 == 0 or (u * i) % 5 == 3]
    pairs += pairs[::9]
    users, items = np.array(pairs).T
    dense = Interactions.from_indices(users, items, 20, 12)
    table = {"user": [f"u{u}" for u in dense.users], "item": [f"i{i}" for i in dense.items]}
    import pyarrow as pa

    return Interactions.from_arrow(pa.table(table), user="user", item="item")


SMALL = {"embedding_dim": 8, "epochs": 4, "seed": 1}


@pytest.fixture(scope="module")
def rankformer(data):
    return Rankformer(num_layers=2, **SMALL).fit(data)


@pytest.fixture(scope="module")
def lightgcn(data):
    return LightGCN(num_layers=2, **SMALL).fit(data)


def history_of(model, user):
    history = model.recommender.history
    row = model.recommender.user_ids.index_of([user])[0]
    return model.recommender.item_ids.take(history.items[history.users == row]).to_pylist()


def total(explanation):
    items = sum(reason.contribution for reason in explanation.reasons)
    return items + explanation.user_contribution + explanation.global_contribution


@pytest.mark.parametrize("name", ["rankformer", "lightgcn"])
def test_the_parts_sum_to_the_score_of_every_pair(name, request, data):
    model = request.getfixturevalue(name)
    scores = model.embeddings.users.double() @ model.embeddings.items.double().T
    for row, user in enumerate(data.user_ids.ids.to_pylist()):
        for column, item in enumerate(data.item_ids.ids.to_pylist()):
            found = model.explain(user, item)
            assert found.score == pytest.approx(float(scores[row, column]), abs=1e-9)
            assert total(found) == pytest.approx(found.score, abs=1e-5)
            values = [reason.contribution for reason in found.reasons]
            assert values == sorted(values, reverse=True)
            assert {reason.item_id for reason in found.reasons} == set(history_of(model, user))
            assert len(values) == len(set(history_of(model, user)))  # duplicates are one reason


def test_only_methods_with_embeddings_of_users_have_a_user_contribution(rankformer, lightgcn):
    assert rankformer.explain("u0", "i1").user_contribution == 0.0
    assert abs(lightgcn.explain("u0", "i1").user_contribution) > 1e-4


def test_a_history_is_explained_like_the_user_who_has_it(rankformer):
    trained = rankformer.explain("u3", "i2")
    new = rankformer.explain(item="i2", history=history_of(rankformer, "u3"))
    assert new.user_id is None
    assert new.score == pytest.approx(trained.score, abs=1e-5)
    assert total(new) == pytest.approx(new.score, abs=1e-12)
    assert [reason.item_id for reason in new.reasons] == [reason.item_id for reason in trained.reasons]


def test_a_training_users_history_gets_that_users_list(rankformer, data):
    users = data.user_ids.ids.to_pylist()
    expected = rankformer.recommend(users, k=5)
    found = rankformer.recommend(histories={user: history_of(rankformer, user) for user in users}, k=5)
    assert found.table["item_id"] == expected.table["item_id"]
    assert found.table["user_id"] == expected.table["user_id"]
    np.testing.assert_allclose(found.table["score"].to_numpy(), expected.table["score"].to_numpy(), rtol=1e-5)
    assert found.unknown_items == {}
    assert found.fallbacks == []


def test_histories_in_one_call_equal_one_call_each(rankformer):
    histories = {"a": ["i0", "i2"], "b": ["i1"], "c": ["i5", "i5", "i7"]}
    together = rankformer.recommend(histories=histories, k=4).to_dicts()
    alone = [
        row for name in histories for row in rankformer.recommend(histories={name: histories[name]}, k=4).to_dicts()
    ]
    assert [(row["user_id"], row["item_id"], row["rank"]) for row in together] == [
        (row["user_id"], row["item_id"], row["rank"]) for row in alone
    ]


def test_unknown_items_are_reported_and_empty_histories_fall_back_to_popularity(rankformer, data):
    lists = rankformer.recommend(histories={1: ["i0", "nothing", 7], 2: [], 3: ["nothing"]}, k=3)
    assert lists.unknown_items == {1: ["nothing", 7], 3: ["nothing"]}
    assert lists.fallbacks == [2, 3]
    popular = Popularity().fit(data).recommend(["u0"], k=3, include_seen=True).to_dicts()
    for key in (2, 3):
        rows = [row for row in lists.to_dicts() if row["user_id"] == key]
        assert [(row["item_id"], row["score"]) for row in rows] == [(row["item_id"], row["score"]) for row in popular]
    assert "i0" not in [row["item_id"] for row in lists.to_dicts() if row["user_id"] == 1]


def test_filters_hold_for_histories(rankformer):
    ask = {"histories": {"x": ["i0"], "y": []}, "k": 12}
    allowed = rankformer.recommend(**ask, allow=["i0", "i3", "i4"]).to_dicts()
    assert {row["item_id"] for row in allowed if row["user_id"] == "x"} == {"i3", "i4"}
    assert {row["item_id"] for row in allowed if row["user_id"] == "y"} == {"i0", "i3", "i4"}
    blocked = rankformer.recommend(**ask, block=["i3"], include_seen=True).to_dicts()
    assert "i3" not in {row["item_id"] for row in blocked}
    assert "i0" in {row["item_id"] for row in blocked if row["user_id"] == "x"}


def test_no_histories_are_no_lists(rankformer):
    assert len(rankformer.recommend(histories={})) == 0


def test_what_cannot_be_asked(rankformer, data):
    with pytest.raises(UnknownIdError, match="unknown user: 'nobody'"):
        rankformer.explain("nobody", "i1")
    with pytest.raises(UnknownIdError, match="unknown item: 'nothing'"):
        rankformer.explain("u1", "nothing")
    with pytest.raises(UnknownIdError, match="item in the history"):
        rankformer.explain(item="i1", history=["nothing"])
    with pytest.raises(ConfigError, match="cannot be given together"):
        rankformer.recommend(["u1"], histories={"x": ["i1"]})
    with pytest.raises(ConfigError, match=r"write \['i1'\]"):
        rankformer.recommend(histories={"x": "i1"})
    with pytest.raises(ConfigError, match="one type"):
        rankformer.recommend(histories={"x": ["i1"], 2: ["i1"]})
    factorization = MatrixFactorization(**SMALL).fit(data)
    with pytest.raises(NotSupportedError, match="cannot score new users"):
        factorization.recommend(histories={"x": ["i1"]})
    for model in (factorization, Popularity().fit(data)):
        with pytest.raises(NotSupportedError, match="cannot be explained"):
            model.explain("u1", "i1")


@pytest.mark.parametrize("name", ["rankformer", "lightgcn"])
def test_a_saved_run_answers_and_explains_the_same(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "run")
    again = load_model(tmp_path / "run")
    asked = {"x": ["i0", "i3"]}
    assert again.recommend(histories=asked).table == model.recommend(histories=asked).table
    assert again.explain("u2", "i1") == model.explain("u2", "i1")


def rewrite(folder, change):
    manifest = read_checksummed_json(folder / "manifest.json")
    change(manifest)
    (folder / "manifest.json").write_bytes(checksummed_json(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["scorer"].update(fold_in={"rule": "__import__"}),
        lambda manifest: manifest["scorer"].update(fold_in="rank-attention"),
        lambda manifest: manifest["scorer"]["fold_in"].pop("tau"),
        lambda manifest: manifest["scorer"]["fold_in"].update(tau="a lot"),
        lambda manifest: manifest["scorer"]["fold_in"].update(weights={"alpha": 2.0, "surprise": 1}),
        lambda manifest: manifest["scorer"]["fold_in"].update(weights=3),
    ],
)
def test_a_rule_that_was_tampered_with_is_refused_by_name(rankformer, tmp_path, change):
    rankformer.save(tmp_path / "run")
    rewrite(tmp_path / "run", change)
    with pytest.raises(RunFolderError, match=r"embeddings\.safetensors does not hold what a run needs"):
        load_model(tmp_path / "run")


def test_a_run_without_a_rule_still_loads(rankformer, tmp_path):
    rankformer.save(tmp_path / "run")
    rewrite(tmp_path / "run", lambda manifest: manifest["scorer"].pop("fold_in"))
    model = load_model(tmp_path / "run")
    assert model.recommend(["u1"], k=2).table == rankformer.recommend(["u1"], k=2).table
    with pytest.raises(NotSupportedError, match="cannot score new users"):
        model.recommend(histories={"x": ["i1"]})


def test_an_explanation_as_text_and_as_json(rankformer):
    found = rankformer.explain("u0", "i1")
    assert json.loads(json.dumps(found.to_dict()))["reasons"][0]["item_id"] == found.reasons[0].item_id
    assert "(all other items)" in str(found)
    assert f"{found.score:.4f}" in str(found)
    assert torch.isfinite(torch.tensor(found.score))
