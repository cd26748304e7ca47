import numpy as np
import pytest

from rankformer.serving.model import validation_curve


def test_users_are_found_by_their_id(client, recommender):
    users = client.get("/v1/users?query=U29&limit=4").json()["users"]
    assert [user["user_id"] for user in users] == ["u29", "u290", "u291", "u292"]
    assert users[0]["count"] == recommender.seen.counts[29]
    assert [user["user_id"] for user in client.get("/v1/users?limit=3").json()["users"]] == ["u0", "u1", "u2"]
    assert client.get("/v1/users?query=u999").json()["users"] == [{"user_id": "u999", "count": 0}]


def test_items_are_found_by_id_or_title_and_the_popular_come_first(client, recommender):
    popularity = np.bincount(recommender.seen.items, minlength=80)
    items = client.get("/v1/items?limit=1000").json()["items"]
    assert [item["count"] for item in items] == sorted(popularity, reverse=True)
    found = client.get("/v1/items?query=TITLE%207").json()["items"]
    assert {item["title"] for item in found} == {f"Title {n} <b>é" for n in (7, *range(70, 80)) if n % 7 != 3}
    assert [item["count"] for item in found] == sorted((item["count"] for item in found), reverse=True)
    assert client.get("/v1/items?query=i33").json()["items"][0]["item_id"] == "i33"


def test_a_history_is_told_in_the_order_of_the_log(client, recommender):
    log = recommender.history
    items = list(dict.fromkeys(f"i{item}" for item in log.items[log.users == 4]))
    answer = client.get("/v1/users/u4/history").json()
    assert [item["item_id"] for item in answer["items"]] == items
    assert answer["count"] == len(items)
    short = client.get("/v1/users/u4/history?limit=1").json()
    assert (len(short["items"]), short["count"]) == (1, len(items))
    assert client.get("/v1/users/u999/history").json()["items"] == []
    assert client.get("/v1/users/nobody/history").status_code == 404


@pytest.mark.parametrize("url", ["/v1/users", "/v1/items", "/v1/users/u1/history"])
@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "other=1"])
def test_limits(client, url, query):
    assert client.get(f"{url}?{query}").status_code == 422


def test_a_long_query_is_refused(client):
    assert client.get("/v1/items?query=" + "x" * 201).status_code == 422


def test_the_model_card(client):
    card = client.get("/v1/model").json()
    assert (card["model"], card["users"], card["items"], card["curve_metric"]) == ("toy", 1000, 80, "ndcg@20")
    assert card["curve"] == [
        {"epoch": 1, "value": 0.25, "seconds": 0.2},
        {"epoch": 2, "value": None, "seconds": 0.4},
    ]
    assert card["can"] == {"fold_in": True, "explain": True, "similar": True}
    assert card["metrics"] == {"ndcg@20": 0.25}


def test_the_model_card_does_not_show_where_files_are(client):
    answer = client.get("/v1/model")
    assert answer.json()["data"]["source"]["source"] == "clicks.csv"
    assert "private" not in answer.text


def test_a_curve_without_the_chosen_metric_shows_what_there_is():
    log = [{"event": "validation", "epoch": 3, "recall@5": 0.5, "best": True, "seconds": 1.0}]
    assert validation_curve(log, "ndcg@20") == ("recall@5", [{"epoch": 3, "value": 0.5, "seconds": 1.0}])
    assert validation_curve([], "ndcg@20") == (None, [])
