"""Items without interactions: scored by their attributes, in every kind of scorer, and better than by chance."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer import EASE, IALS, Items, LightGCN, load_model
from rankformer.data.demo import demo_log
from rankformer.errors import NotSupportedError
from rankformer.runs.saved import load_run
from rankformer.scoring.cold_items import _block_weights, _blocks
from rankformer.scoring.options import RankingOptions

pytestmark = pytest.mark.usefixtures("one_thread")
HELD = 80


@pytest.fixture(scope="module")
def shop():
    """The demo without a fifth of its books: (training log, items of all books, held-out interactions)."""
    log, rng = demo_log(), np.random.default_rng(0)
    held = np.sort(rng.permutation(log.num_items)[:HELD])
    is_held = np.isin(log.items, held)
    genres = [title.rsplit("(", 1)[1][:-1] for title in log.item_titles.to_pylist()]
    columns = {
        "item_id": log.item_ids.ids,
        "genre": pa.array(genres),
        "price": pa.array(rng.uniform(5, 60, log.num_items)),  # says nothing
        "shelf": pa.array([f"s{number}" for number in rng.integers(0, 10, log.num_items)]),  # nor does this
    }
    return log.keep(~is_held), pa.table(columns), log.rows(is_held)


def ndcg_among(recommender, later):
    """Mean NDCG@20 over users of ranking the held-out items among each other, and of a random order."""
    raw = sorted(set(later.item_ids.take(later.items).to_pylist()))
    users = recommender.user_ids.index_of(later.user_ids.take(later.users).to_pylist())
    hits = np.zeros((len(recommender.user_ids), len(raw)), dtype=bool)
    position = {item: column for column, item in enumerate(raw)}
    columns = np.array([position[item] for item in later.item_ids.take(later.items).to_pylist()])
    hits[users[users >= 0], columns[users >= 0]] = True
    counted = np.flatnonzero(hits.any(1))
    indices = recommender.catalogue.index_of(raw)
    options = RankingOptions(HELD, True, tuple(indices.tolist()), include_cold=True)
    order = recommender.rank(torch.from_numpy(counted), options).items.numpy()
    column_of = np.full(len(recommender.catalogue), -1)
    column_of[indices] = np.arange(len(raw))

    def ndcg(ranked):
        found = np.take_along_axis(hits[counted], ranked[:, :20], 1)
        discounts = 1 / np.log2(np.arange(2, 22))
        ideal = np.cumsum(discounts)[np.minimum(hits[counted].sum(1), 20) - 1]
        return float(np.mean((found * discounts).sum(1) / ideal))

    chance = np.stack([np.random.default_rng(user).permutation(len(raw)) for user in counted])
    return ndcg(column_of[order]), ndcg(chance)


@pytest.mark.parametrize(
    "make", [EASE, IALS, lambda: LightGCN(epochs=30, embedding_dim=32)], ids=["ease", "ials", "gcn"]
)
def test_items_held_out_of_training_are_ranked_far_better_than_by_chance(shop, make):
    train, table, later = shop
    model = make().fit(train).use_items(Items.from_arrow(table))
    quality, chance = ndcg_among(model.recommender, later)
    assert chance < 0.2
    assert quality > 0.6


def test_attributes_that_say_nothing_get_next_to_no_weight(shop):
    train, table, _ = shop
    model = EASE().fit(train)
    items = Items.from_arrow(table).align(train.item_ids)
    blocks = list(_blocks(items))
    matrix = model.recommender.scorer.histories.tocsc()
    genre, genre_words, price, shelf, shelf_words = _block_weights(blocks, matrix, np.arange(train.num_items))
    assert genre + genre_words > 0.9
    assert price + shelf + shelf_words < 0.1


def test_a_cold_score_is_its_combination_of_known_scores(shop):
    train, table, _ = shop
    recommender = IALS().fit(train).use_items(Items.from_arrow(table)).recommender
    cold, m = recommender.cold_items, train.num_items
    assert cold.items.tolist() == list(range(m, m + HELD))
    np.testing.assert_allclose(cold.weights.sum(1), 1, atol=1e-4)
    users = torch.arange(5)
    found = recommender.rank(users, RankingOptions(m + HELD, True, include_cold=True))
    known = recommender.scorer.scores(users).numpy()
    whole = np.concatenate([known, known @ cold.weights.toarray().T], axis=1)
    listed = found.items.numpy()
    assert sorted(listed[0].tolist()) == list(range(m + HELD))
    np.testing.assert_allclose(found.scores.numpy(), np.take_along_axis(whole, listed, 1), rtol=1e-4, atol=1e-5)
    assert (np.diff(found.scores.numpy(), axis=1) <= 0).all()


def test_lists_flag_cold_items_and_can_do_without_them(shop, tmp_path):
    train, table, _ = shop
    model = EASE().fit(train).use_items(Items.from_arrow(table))
    users = ["mira-001", "otto-002"]
    rows = model.recommend(users, 30).to_dicts()
    new = set(table["item_id"].to_pylist()) - set(train.item_ids.ids.to_pylist())
    assert {row["item_id"] for row in rows if row["cold"]} == {row["item_id"] for row in rows} & new != set()
    warm = model.recommend(users, 30, include_cold=False).to_arrow()
    assert warm.equals(model.recommend(users, 30, where="not cold").to_arrow())
    assert not new & set(warm["item_id"].to_pylist())
    assert warm["item_id"].equals(EASE().fit(train).recommend(users, 30).to_arrow()["item_id"])
    [one] = list(new)[:1]
    for ask in (lambda: model.similar_items(one), lambda: model.explain("mira-001", one)):
        with pytest.raises(NotSupportedError, match="has no interactions"):
            ask()
    # Kept in the run folder, attributes and weights alike.
    model.save(tmp_path / "run")
    again = load_model(tmp_path / "run")
    assert again.recommend(users, 30).to_arrow().equals(model.recommend(users, 30).to_arrow())
    assert (
        load_run(tmp_path / "run").recommender.items.columns["genre"].equals(model.recommender.items.columns["genre"])
    )


def test_an_item_of_which_nothing_is_known_is_never_listed(shop):
    train, table, _ = shop
    empty = table.slice(0, 1).set_column(0, "item_id", pa.array(["mystery"]))
    for name in ("genre", "price", "shelf"):
        position = empty.column_names.index(name)
        empty = empty.set_column(position, name, pa.nulls(1, table[name].type))
    model = EASE().fit(train).use_items(Items.from_arrow(pa.concat_tables([table, empty])))
    everything = model.recommend(["mira-001"], 1000, include_seen=True).to_arrow()
    assert "mystery" not in everything["item_id"].to_pylist()
    assert len(everything) == train.num_items + HELD


def test_an_item_of_the_model_without_interactions_is_cold_too():
    log = demo_log()
    train = log.rows(log.items != 17)  # keeps its index, has nothing
    genres = [title.rsplit("(", 1)[1][:-1] for title in log.item_titles.to_pylist()]
    items = Items.from_arrow(pa.table({"item_id": log.item_ids.ids, "genre": genres}))
    recommender = EASE().fit(train).use_items(items).recommender
    assert recommender.is_cold.nonzero()[0].tolist() == [17]
    name = log.item_ids.ids[17].as_py()
    rows = recommender.recommend(None, 30).to_arrow()
    flagged = rows.filter(rows["cold"])
    assert set(flagged["item_id"].to_pylist()) == {name}
    assert len(flagged) > 20  # readers of its genre
    assert name not in recommender.recommend(None, 30, include_cold=False).to_arrow()["item_id"].to_pylist()


def test_popularity_answers_without_cold_items_whatever_the_length(shop):
    train, table, _ = shop
    train = train.rows(train.users != 0)  # this user is known and has nothing
    recommender = EASE().fit(train).use_items(Items.from_arrow(table)).recommender
    found = recommender.recommend(["mira-001", "otto-002"], 1000, include_seen=True)
    rows = found.to_dicts()
    assert found.fallbacks == ["mira-001"]
    counts = {user: sum(row["user_id"] == user for row in rows) for user in ("mira-001", "otto-002")}
    assert counts == {"mira-001": train.num_items, "otto-002": train.num_items + HELD}
    assert not any(row["cold"] for row in rows if row["user_id"] == "mira-001")
    assert len(recommender.recommend_histories({"a": [], "b": ["book-001"]}, 1000)) > train.num_items
