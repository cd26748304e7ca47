"""What the service says of a blend: its members in explanations, sessions and the model card."""

import pytest

from rankformer.runs.saved import load_run
from rankformer.serving import schemas

from .clients import asking
from .runs import write_blend


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_blend(tmp_path_factory.mktemp("runs") / "blend")


@pytest.fixture(scope="module")
def blend(folder):
    return load_run(folder).recommender


@pytest.fixture(scope="module")
def client(folder):
    with asking(folder) as client:
        yield client


def test_an_explanation_has_the_score_of_each_member(client, blend):
    answer = client.get("/v1/explain/u7/i3").json()
    schemas.ExplainAnswer.model_validate(answer)
    assert answer["members"] == pytest.approx(dict(blend.explain("u7", "i3").members))
    assert sum(answer["members"].values()) == pytest.approx(answer["score"])
    whole = sum(reason["contribution"] for reason in answer["reasons"]) + answer["own"] + answer["crowd"]
    assert whole == pytest.approx(answer["score"], abs=1e-4)


def test_a_session_says_which_members_it_does_without(client, blend):
    answer = client.post("/v1/recommend:session", json={"history": ["i1", "i5"], "k": 4}).json()
    schemas.SessionAnswer.model_validate(answer)
    assert answer["left_out"] == ["table"]
    expected = blend.recommend_histories({"new": ["i1", "i5"]}, 4)
    assert [entry["item_id"] for entry in answer["items"]] == expected.table["item_id"].to_pylist()
    explained = client.post("/v1/explain:session", json={"history": ["i1", "i5"], "item": "i3"}).json()
    assert explained["members"].keys() == {"graph"}


def test_the_model_card_has_the_report(client):
    answer = client.get("/v1/model").json()
    schemas.ModelAnswer.model_validate(answer)
    report = answer["blend"]
    assert [member["label"] for member in report["members"]] == ["graph", "table"]  # the heaviest first
    graph = {"label": "graph", "settings": {"l2": 0.1}, "weight": 0.75, "alone": 0.3, "without": 0.2, "seconds": 1.5}
    assert report["members"][0] == graph
    assert (report["value"], report["refused"]) == (0.35, {"ease": "too large"})


def test_answers_are_described(client):
    described = client.get("/openapi.json").json()["components"]["schemas"]
    assert "members" in described["ExplainAnswer"]["properties"]
    assert "left_out" in described["SessionAnswer"]["properties"]
    assert "blend" in described["ModelAnswer"]["properties"]
    assert described["BlendMember"]["properties"].keys() == {
        "label",
        "settings",
        "weight",
        "alone",
        "without",
        "seconds",
    }
