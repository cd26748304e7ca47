"""Updates: what is known keeps its index and its parameters, what is new joins, weights decay further."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer import IALS, Blend, Interactions, LightGCN, Rankformer
from rankformer.data.id_map import IdMap
from rankformer.errors import DataError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.initialization import grow_

pytestmark = pytest.mark.usefixtures("one_thread")


def log(pairs, **columns):
    users, items = zip(*pairs, strict=True)
    return Interactions.from_arrow(pa.table({"user": users, "item": items, **columns}))


def boards(seed=0):
    """Even users like even items: what was known, and what follows with a new user and a new item of each kind."""
    rng = np.random.default_rng(seed)
    pairs = [(f"u{u}", i) for u in range(30) for i in range(u % 2, 24, 2) if rng.random() < 0.7]
    new = [(f"u{u}", i) for u in range(30, 32) for i in range(u % 2, 24, 2) if rng.random() < 0.6]
    return log(pairs), log([*new, *((f"u{u}", 24 + u % 2) for u in range(20))])


@pytest.mark.parametrize(
    "model",
    [
        Rankformer(epochs=40, embedding_dim=8, num_layers=1),
        LightGCN(epochs=40, embedding_dim=8),
        IALS(embedding_dim=8),
        Blend(members=("ials", "item-knn", "lightgcn"), tune=False),
    ],
    ids=lambda model: model.name,
)
def test_new_users_and_items_join(model, tmp_path):
    old, new = boards()
    model.fit(old, verbose=False)
    model.save(tmp_path / "one")
    model = type(model).load(tmp_path / "one").updated(new, verbose=False)
    recommender = model.recommender
    assert recommender.user_ids.ids.slice(0, 30).equals(old.user_ids.ids)
    assert len(recommender.history) == len(old) + len(new)
    for user in ("u30", "u31", "u4", "u25"):
        own = model.recommend([user], k=3).to_arrow()["item_id"].to_pylist()
        assert {item % 2 for item in own} == {int(user[1:]) % 2}, user
    late = model.recommend(["u24"], k=25).to_arrow()["item_id"].to_pylist()
    assert late.index(24) < len(late) / 2  # a new item that users of its kind have
    model.save(tmp_path / "two")
    again = type(model).load(tmp_path / "two")
    assert again.recommend(["u30"], k=5).to_dicts() == model.recommend(["u30"], k=5).to_dicts()
    assert again.choices() == model.choices()


@pytest.mark.parametrize("best", [4, 40])
def test_a_training_that_was_best_early_is_begun_again_and_any_other_continued(best):
    old, new = boards()
    model = LightGCN(epochs=40, embedding_dim=8, validate_every=4).fit(old, choices={"epochs": best}, verbose=False)
    model.log = [event for event in model.log if event["epoch"] <= best]
    updated = model.updated(new, verbose=False)
    again = model.refitted(updated.recommender.history, verbose=False)
    assert torch.equal(updated.embeddings.items, again.embeddings.items) is (best == 4)
    if best == 40:
        before, after = (each.network.state_dict()["table"][:20] for each in (model, updated))  # users of both
        assert (after - before).norm() < before.norm() / 4


def test_nothing_new_changes_nothing():
    old, new = boards()
    model = IALS(embedding_dim=8).fit(old, verbose=False)
    same = model.updated(new.rows(np.zeros(0, np.int64)), verbose=False)
    assert torch.equal(same.embeddings.items, model.embeddings.items)


def test_grown_tables_keep_old_rows_and_reach_new_ones():
    graph = BipartiteGraph.from_interactions(Interactions.from_indices([0, 1, 2, 2], [0, 1, 1, 2], 4, 3))
    old, table = torch.arange(1.0, 9.0).reshape(4, 2), torch.full((7, 2), 0.5)
    grow_(table, old, 2, graph)  # users 0, 1 and items 0, 1 are known
    assert torch.equal(table[:2], old[:2])
    assert torch.equal(table[4:6], old[2:])
    direction = old[3] / old[3].norm()
    lengths = old.norm(dim=1)
    assert torch.allclose(table[2], direction * lengths[:2].mean())  # user 2 has item 1
    assert torch.allclose(table[6], direction * lengths[2:].mean())  # item 2 is reached through user 2
    assert torch.equal(table[3], torch.full((2,), 0.5))  # user 3 has nothing


def test_ids_are_extended_in_the_type_of_the_model():
    ids, indices = IdMap(pa.array(["b", "7"])).extended(IdMap(pa.array([7, 8])), "user")
    assert ids.ids.to_pylist() == ["b", "7", "8"]
    assert indices.tolist() == [1, 2]
    with pytest.raises(DataError, match="user ids are int64"):
        IdMap(pa.array([1])).extended(IdMap(pa.array(["x"])), "user")


def test_weights_decay_as_if_all_had_been_counted_at_once():
    day = 86_400
    times = 1_780_000_000 + day * np.arange(6)
    pairs, weights = [("a", 1), ("b", 2), ("a", 3), ("b", 1), ("a", 2), ("c", 3)], [1.0, 2.0, 3.0, 1.0, 5.0, 1.0]
    whole = log(pairs, time=times, weight=weights).decay("2d")
    first, second = (log(pairs[part], time=times[part], weight=weights[part]) for part in (slice(4), slice(4, 6)))
    joined = first.decay("2d").extended(second.decay("2d"))
    np.testing.assert_allclose(joined.weights, whole.confidence, rtol=1e-6)
    assert joined.counted_at == times[-1]
    late = second.decay("2d").extended(first.decay("2d"))  # older ones that come later
    np.testing.assert_allclose(late.weights, np.roll(whole.confidence, 2), rtol=1e-6)
    milliseconds = log(pairs[4:], time=times[4:] * 1000, weight=weights[4:])
    other_unit = first.decay("2d").extended(milliseconds.decay("2d"))
    np.testing.assert_allclose(other_unit.weights, whole.confidence, rtol=1e-6)
    with pytest.raises(DataError, match="decay both alike"):
        first.decay("2d").extended(second)


def test_decay_survives_the_run_folder(tmp_path):
    times = 1_780_000_000 + 86_400 * np.arange(6)
    pairs = [("a", 1), ("b", 2), ("a", 3), ("b", 1), ("a", 2), ("c", 3)]
    IALS(embedding_dim=2).fit(log(pairs[:4], time=times[:4]).decay("2d"), verbose=False).save(tmp_path / "run")
    model = IALS.load(tmp_path / "run").updated(log(pairs[4:], time=times[4:]).decay("2d"), verbose=False)
    whole = log(pairs, time=times).decay("2d")
    np.testing.assert_allclose(model.recommender.history.weights, whole.confidence, rtol=1e-6)


def test_titles_are_joined():
    first = log([("a", 1), ("b", 2)], title=["one", None])
    second = log([("a", 2), ("b", 3)], title=["two", "three"])
    assert first.extended(second).item_titles.to_pylist() == ["one", "two", "three"]
    assert first.extended(log([("a", 9)])).item_titles.to_pylist() == ["one", None, None]


def test_a_known_user_with_new_items_is_the_user_with_a_longer_history():
    old, _ = boards()
    model = IALS(embedding_dim=8).fit(old, verbose=False)
    own = model.recommender.history_of(0)
    items = model.recommender.item_ids.ids.to_pylist()
    user, added = model.recommender.user_ids.ids[0].as_py(), [item for item in (0, 2, 4) if item not in own][:2]
    extended = model.recommend(histories={user: added}, extend=True).to_dicts()
    whole = model.recommend(histories={user: [*(items[item] for item in own), *added]}).to_dicts()
    assert extended == whole
    assert (
        model.recommend(histories={"new": added}, extend=True).to_dicts()
        == model.recommend(histories={"new": added}).to_dicts()
    )
    same = model.recommend(histories={user: []}, extend=True).to_dicts()
    assert [row["item_id"] for row in same] == [row["item_id"] for row in model.recommend([user]).to_dicts()]
