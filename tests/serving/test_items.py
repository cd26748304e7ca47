"""Attributes, filters, named sets and cold items over HTTP: the same as in the library."""

from urllib.parse import quote

import pytest

from rankformer.runs.saved import load_run
from rankformer.serving.settings import ServiceSettings, Tokens

from .clients import asking
from .runs import ITEMS, write_shop

ADMIN = "an-admin-token-of-enough-letters"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return write_shop(tmp_path_factory.mktemp("shop") / "run")


@pytest.fixture(scope="module")
def recommender(shop):
    return load_run(shop).recommender


@pytest.fixture(scope="module")
def client(shop):
    with asking(shop) as client:
        yield client


def items_of(answer):
    assert answer.status_code == 200, answer.text
    return [entry["item_id"] for entry in answer.json()["items"]]


def listed(lists, key="item_id"):
    return [row[key] for row in lists.to_dicts()]


def test_entries_have_attributes_and_say_which_are_cold(client, recommender):
    entries = client.get("/v1/recommend/u1?k=1000&include_seen=true").json()["items"]
    assert len(entries) == ITEMS + 2
    assert {entry["item_id"] for entry in entries if entry.get("cold")} == {"new-0", "new-1"}
    one = next(entry for entry in entries if entry["item_id"] == "i5")
    assert one["attributes"] == {"brand": "b1", "price": 2.5, "tags": ["<b>red</b>"], "in_stock": True}
    assert items_of(client.get("/v1/recommend/u1?k=1000&include_cold=false")) == listed(
        recommender.recommend(["u1"], 1000, include_cold=False)
    )
    card = client.get("/v1/model").json()
    assert card["attributes"]["price"] == "double"
    assert card["cold_items"] == 2
    assert card["items"] == ITEMS
    assert "attributes" in client.get("/v1/items?query=new-0").json()["items"][0]
    assert "attributes" in client.get("/v1/users/u1/history").json()["items"][0]


def test_every_way_to_ask_takes_the_filters(client, recommender):
    where, rules = "brand in ('b1', 'b2') and price < 30", {"at_most": ["3:brand"], "boost": ["1.5:in_stock"]}
    filters = {"where": where, "at_most": {"brand": 3}, "boost": {"in_stock": 1.5}}
    query = f"k=8&where={quote(where)}&at_most=3:brand&boost=1.5:in_stock"
    expected = listed(recommender.recommend(["u1"], 8, **filters))
    assert len(expected) == 6
    assert items_of(client.get(f"/v1/recommend/u1?{query}")) == expected
    body = {"k": 8, "where": where, **rules}
    batch = client.post("/v1/recommend:batch", json={"users": ["u1"], **body}).json()["results"]
    assert [entry["item_id"] for entry in batch[0]["items"]] == expected
    session = client.post("/v1/recommend:session", json={"history": ["i1", "new-0"], **body})
    assert items_of(session) == listed(recommender.recommend_histories({"x": ["i1"]}, 8, **filters))
    assert session.json()["unknown_items"] == ["new-0"]  # nothing is learned of it
    similar = client.get(f"/v1/items/i1/similar?{query}")
    assert items_of(similar) == listed(recommender.similar_items("i1", 8, **filters), "similar_item_id")


def test_lists_of_ids_are_as_long_as_a_body_lets_them(client):
    known = [f"i{number}" for number in range(10)]
    body = {"users": ["u1"], "k": 100, "include_seen": True, "allow": [*known, *(f"x{n}" for n in range(50_000))]}
    [found] = client.post("/v1/recommend:batch", json=body).json()["results"]
    assert sorted(entry["item_id"] for entry in found["items"]) == known


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("where=colour%20%3D%201", "no column 'colour' at position 1; there are"),
        ("where=price%20%3C", "found the end at position 8"),
        ("at_most=brand", "expected a number, a colon"),
        ("at_most=0:brand", "expected an integer from 1"),
        ("at_most=1:tags", "an item may have several of it"),
        ("boost=inf:in_stock", "expected a finite number"),
        ("boost=1:price", "'price' is no boolean"),
    ],
)
def test_wrong_filters_are_explained(client, query, message):
    answer = client.get(f"/v1/recommend/u1?{query}")
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_request"
    assert message in answer.json()["error"]["message"]


def test_what_needs_interactions_says_so_of_a_cold_item(client):
    for url in ("/v1/items/new-0/similar", "/v1/explain/u1/new-0"):
        answer = client.get(url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_supported")
        assert "has no interactions" in answer.json()["error"]["message"]


def test_named_sets_hold_for_every_list_and_are_read_again_with_the_model(shop, tmp_path):
    stock = tmp_path / "stock.txt"
    stock.write_text("i1\ni2\ni3\nunknown\n", encoding="utf-8")
    settings = ServiceSettings(item_sets={"available": stock}, where="available")
    with asking(shop, settings, Tokens(admin=ADMIN)) as client:

        def names(where=""):
            return sorted(
                items_of(client.get(f"/v1/recommend/u1?include_seen=true&where={quote(where or 'available')}"))
            )

        assert names() == ["i1", "i2", "i3"]
        assert names("not available") == []  # a request cannot undo what the service demands
        assert client.get(f"/v1/recommend/u1?where={quote('price > 0) or (price > 0')}").status_code == 422
        assert names("price > 0.5") == ["i2", "i3"]
        stock.write_text("i7\n", encoding="utf-8")
        assert names() == ["i1", "i2", "i3"]
        assert client.post("/v1/admin/reload", headers=HEADERS).status_code == 200
        assert names() == ["i7"]
        stock.unlink()
        assert client.post("/v1/admin/reload", headers=HEADERS).status_code == 409
        assert names() == ["i7"]


def test_items_of_a_file_take_the_place_of_those_of_the_run(shop, tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item_id,title,season\ni1,Coat,winter\n", encoding="utf-8")
    with asking(shop, ServiceSettings(items=path)) as client:
        [entry] = client.get("/v1/recommend/u2?include_seen=true&where=season%3D%27winter%27").json()["items"]
        assert (entry["item_id"], entry["title"], entry["attributes"]) == ("i1", "Coat", {"season": "winter"})
