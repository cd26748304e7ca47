import pytest


def test_the_reasons_of_a_user_are_those_of_the_library(client, recommender):
    answer = client.get("/v1/explain/u7/i3").json()
    found = recommender.explain("u7", "i3")
    assert (answer["user_id"], answer["item_id"], answer["title"]) == ("u7", "i3", None)
    assert [(reason["item_id"], reason["title"], reason["contribution"]) for reason in answer["reasons"]] == [
        (reason.item_id, reason.title, reason.contribution) for reason in found.reasons
    ]
    whole = sum(reason["contribution"] for reason in answer["reasons"]) + answer["own"] + answer["crowd"]
    assert whole == pytest.approx(answer["score"], abs=1e-5)
    assert answer["score"] == pytest.approx(found.score)


def test_the_reasons_of_a_session(client, recommender):
    answer = client.post("/v1/explain:session", json={"history": ["i1", "nothing", "i5"], "item": "i3"}).json()
    found = recommender.explain(item="i3", history=["i1", "i5"])
    assert answer["user_id"] is None
    assert {reason["item_id"] for reason in answer["reasons"]} == {"i1", "i5"}
    assert answer["score"] == pytest.approx(found.score)


@pytest.mark.parametrize(
    ("url", "code"), [("/v1/explain/nobody/i1", "unknown_user"), ("/v1/explain/u1/nothing", "unknown_item")]
)
def test_unknown_ids(client, url, code):
    answer = client.get(url)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize("body", [{"history": ["i1"], "item": "nothing"}, {"history": ["nothing"], "item": "i1"}])
def test_sessions_that_cannot_be_explained(client, body):
    answer = client.post("/v1/explain:session", json=body)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "unknown_item"


def test_a_history_that_is_too_long(client):
    for url, body in (("explain:session", {"item": "i1"}), ("recommend:session", {})):
        assert client.post(f"/v1/{url}", json={"history": ["i1"] * 1001, **body}).status_code == 422
