"""Lists over HTTP equal those of the library."""

import datetime
import json
import tracemalloc
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from rankformer.runs.saved import load_run
from rankformer.scoring.options import RankingOptions
from rankformer.serving.errors import json_bytes, long_json_bytes
from rankformer.serving.schemas import BatchRequest, with_limits
from rankformer.serving.settings import ServiceSettings

from .clients import asking, asking_at_once
from .runs import USERS, write_run


def expected(rows, item="item_id"):
    return [{"item_id": row[item], "title": row["title"], "score": row["score"], "rank": row["rank"]} for row in rows]


def check_list(entries, rows, item="item_id"):
    """Same items and ranks; scores equal up to the rounding that depends on how many users a product holds."""
    assert [(entry["item_id"], entry["rank"], entry["title"]) for entry in entries] == [
        (row[item], row["rank"], row["title"]) for row in rows
    ]
    np.testing.assert_allclose(
        [entry["score"] for entry in entries], [row["score"] for row in rows], rtol=1e-5, atol=1e-6
    )


def by_user(recommender, users, *args, **options):
    rows = recommender.recommend(users, *args, **options).to_dicts()
    return {user: [row for row in rows if row["user_id"] == user] for user in users}


@pytest.mark.parametrize("batching", [True, False])
def test_every_user_gets_the_exact_list_and_nothing_they_have(run_folder, recommender, batching):
    import asyncio

    users = [f"u{number}" for number in range(USERS if batching else 100)]
    rows = by_user(recommender, users, 7)
    seen = {f"u{number}": set() for number in range(USERS)}
    for user, item in zip(recommender.history.users, recommender.history.items, strict=True):
        seen[f"u{user}"].add(f"i{item}")

    async def ask():
        async with asking_at_once(run_folder, ServiceSettings(batching=batching, queue_size=USERS)) as (client, _):
            return await asyncio.gather(*(client.get(f"/v1/recommend/{user}?k=7") for user in users))

    for user, answer in zip(users, asyncio.run(ask()), strict=True):
        assert answer.status_code == 200
        assert answer.json()["user_id"] == user
        check_list(answer.json()["items"], rows[user])
        assert not seen[user] & {entry["item_id"] for entry in answer.json()["items"]}


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}),
        ("k=1000", {"k": 1000}),
        ("include_seen=true&k=80", {"k": 80, "include_seen": True}),
        ("allow=i1&allow=i2&allow=nothing", {"allow": ["i1", "i2"]}),
        ("block=i1&block=i2&k=80", {"k": 80, "block": ["i1", "i2"]}),
        (
            "allow=i1&allow=i2&block=i2&include_seen=true",
            {"allow": ["i1", "i2"], "block": ["i2"], "include_seen": True},
        ),
    ],
)
def test_options(client, recommender, query, options):
    answer = client.get(f"/v1/recommend/u5?{query}").json()
    check_list(answer["items"], recommender.recommend(["u5"], **{"k": 10, **options}).to_dicts())
    body = {"users": ["u5", "u5"], "k": 10, **options}
    results = client.post("/v1/recommend:batch", json=body).json()["results"]
    assert results[0] == results[1]
    check_list(results[0]["items"], recommender.recommend(["u5"], **{"k": 10, **options}).to_dicts())


def test_requests_with_different_options_at_once_are_not_mixed_up(run_folder, recommender):
    import asyncio

    async def ask():
        async with asking_at_once(run_folder) as (client, _):
            queries = [f"/v1/recommend/u{n}?k={1 + n % 3}&include_seen={str(n % 2 == 0).lower()}" for n in range(60)]
            return await asyncio.gather(*map(client.get, queries))

    for number, answer in enumerate(asyncio.run(ask())):
        rows = recommender.recommend([f"u{number}"], 1 + number % 3, include_seen=number % 2 == 0).to_dicts()
        check_list(answer.json()["items"], rows)


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("/v1/recommend/nobody?fallback=none", 404, "unknown_user"),
        ("/v1/recommend/u999?fallback=none", 404, "unknown_user"),
        ("/v1/recommend/u1?fallback=random", 422, "invalid_request"),
        ("/v1/recommend/u1?allow=nothing", 404, "unknown_item"),
        ("/v1/recommend/u1?block=nothing", 404, "unknown_item"),
        ("/v1/items/nothing/similar", 404, "unknown_item"),
        ("/v1/recommend/u1?k=0", 422, "invalid_request"),
        ("/v1/recommend/u1?k=-1", 422, "invalid_request"),
        ("/v1/recommend/u1?k=1001", 422, "invalid_request"),
        ("/v1/recommend/u1?k=1000000000", 422, "invalid_request"),
        ("/v1/recommend/u1?k=1e1", 422, "invalid_request"),
        ("/v1/recommend/u1?k=", 422, "invalid_request"),
        ("/v1/recommend/u1?k=true", 422, "invalid_request"),
        ("/v1/recommend/u1?k=NaN", 422, "invalid_request"),
        ("/v1/recommend/u1?k=1&k=2", 422, "invalid_request"),
        ("/v1/recommend/u1?K=1", 422, "invalid_request"),
        ("/v1/recommend/u1?include_seen=maybe", 422, "invalid_request"),
        ("/v1/recommend/u1?" + "&".join(["allow=i1"] * 4097), 422, "invalid_request"),
        ("/v1/items/i1/similar?k=0", 422, "invalid_request"),
        ("/v1/items/i1/similar?include_seen=true", 422, "invalid_request"),
        ("/v1/recommend/", 404, "not_found"),
        ("/v1/recommend:batch", 405, "method_not_allowed"),
    ],
)
def test_refusals(client, url, status, code):
    answer = client.get(url)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert len(answer.text) < 500


@pytest.mark.parametrize("user", ["nobody", "u999"])  # unknown; known, without an interaction
def test_whoever_the_model_knows_nothing_about_gets_what_is_popular(client, recommender, user):
    answer = client.get(f"/v1/recommend/{user}?k=4")
    assert answer.status_code == 200
    document = answer.json()
    assert (document["user_id"], document["fallback"]) == (user, "popularity")
    check_list(document["items"], recommender.recommend([user], 4, fallback="popularity").to_dicts())
    counts = [
        int((recommender.history.items == recommender.item_ids.index_of([entry["item_id"]])[0]).sum())
        for entry in document["items"]
    ]
    assert counts == sorted(counts, reverse=True) == [entry["score"] for entry in document["items"]]
    assert client.get("/v1/recommend/u1").json()["fallback"] is None


def test_a_batch_answers_for_each_user_in_turn(client, recommender):
    body = {"users": ["u3", "nobody", 7, "u1"], "k": 3, "fallback": "none"}
    answer = client.post("/v1/recommend:batch", json=body).json()
    assert [entry["user_id"] for entry in answer["results"]] == ["u3", "nobody", 7, "u1"]
    check_list(answer["results"][0]["items"], recommender.recommend(["u3"], 3).to_dicts())
    assert answer["results"][1]["error"]["code"] == answer["results"][2]["error"]["code"] == "unknown_user"
    assert "items" not in answer["results"][1]
    results = client.post("/v1/recommend:batch", json={**body, "fallback": "popularity"}).json()["results"]
    assert [entry["fallback"] for entry in results] == [None, "popularity", "popularity", None]
    check_list(results[1]["items"], recommender.recommend(["nobody"], 3, fallback="popularity").to_dicts())
    assert client.post("/v1/recommend:batch", json={"users": []}).json()["results"] == []
    assert client.post("/v1/recommend:batch", json={"users": ["u1"], "allow": []}).json()["results"][0]["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"users": "u1"},
        {"users": [None]},
        {"users": [["u1"]]},
        {"users": ["u1"], "k": "10"},
        {"users": ["u1"], "k": True},
        {"users": ["u1"], "k": 10.5},
        {"users": ["u1"], "k": 0},
        {"users": ["u1"], "k": 10**9},
        {"users": ["u1"], "include_seen": 1},
        {"users": ["u1"], "extra": 1},
        {"users": ["u1"] * 1001},
        {"users": ["u1"] * 101, "k": 1000},
        {"users": ["u1"], "at_most": ["0:title"]},
    ],
)
def test_bodies_with_wrong_fields(client, body):
    answer = client.post("/v1/recommend:batch", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_request"
    assert len(answer.text) < 500


@pytest.mark.parametrize("field", ["users", "allow", "block"])
def test_a_list_is_read_no_further_than_its_limit_or_its_first_wrong_entry(field):
    model = with_limits(BatchRequest, ServiceSettings(max_users=3, max_filter=3))
    for entries, kind in ((["u1"] * 3 + [None] * 5000, "too_long"), ([None] * 5000, "string_type")):
        with pytest.raises(ValidationError) as error:
            model.model_validate_json(json.dumps({"users": ["u1"], field: entries}))
        assert error.value.errors()[0]["type"] == kind
        assert error.value.error_count() <= 4  # one entry fails as each kind of id


def test_a_session_is_a_new_user_with_a_history(client, recommender):
    body = {"history": ["i1", "i2", "nothing", True, "i2"], "k": 5, "block": ["i9"]}
    answer = client.post("/v1/recommend:session", json=body).json()
    found = recommender.recommend_histories({"x": ["i1", "i2", "i2"]}, 5, block=["i9"])
    check_list(answer["items"], found.to_dicts())
    assert answer["unknown_items"] == ["nothing", True]
    assert answer["fallback"] is None
    assert not {"i1", "i2", "i9"} & {entry["item_id"] for entry in answer["items"]}


def test_an_empty_session_gets_what_is_popular(client, recommender):
    answer = client.post("/v1/recommend:session", json={"history": ["nothing"], "k": 3}).json()
    check_list(answer["items"], recommender.recommend_histories({"x": []}, 3).to_dicts())
    assert answer["fallback"] == "popularity"
    assert answer["unknown_items"] == ["nothing"]


def test_a_method_without_fold_in_says_so(tmp_path):
    with asking(write_run(tmp_path / "run", fold_in=False)) as client:
        for url, body in (
            ("recommend:session", {"history": ["i1"]}),
            ("explain:session", {"history": ["i1"], "item": "i2"}),
        ):
            answer = client.post(f"/v1/{url}", json=body)
            assert answer.status_code == 501
            assert answer.json()["error"]["code"] == "not_supported"
        assert client.get("/v1/explain/u1/i1").status_code == 501
        assert client.get("/v1/model").json()["can"] == {"fold_in": False, "explain": False, "similar": True}


def test_similar_items(client, recommender):
    answer = client.get("/v1/items/i4/similar?k=6").json()
    assert (answer["item_id"], answer["title"]) == ("i4", "Title 4 <b>é")
    check_list(answer["items"], recommender.similar_items("i4", 6).to_dicts(), "similar_item_id")


@pytest.mark.parametrize(
    ("users", "items"),
    [
        (pa.array(["a/b", "%2F", "ü ☃", "a?b=c#d", ":batch"]), pa.array(["x/y", "é", "nul\0"])),
        (pa.array([5, -3, 2**53 + 1]), pa.array([10, 20, 30], pa.uint8())),
        (pa.array([datetime.date(2024, 2, 29), datetime.date(1999, 1, 1)]), pa.array([b"ab", b"\xff/"])),
        (pa.array([0.5, 2.0]), pa.array([True, False])),
    ],
    ids=["strings", "integers", "dates and bytes", "floats and booleans"],
)
def test_ids_of_any_type(tmp_path, users, items):
    recommender = load_run(write_run(tmp_path / "run", user_ids=users, item_ids=items)).recommender
    with asking(tmp_path / "run") as client:
        listed = [entry["user_id"] for entry in client.get("/v1/users").json()["users"]]
        for raw, value in zip(users.to_pylist(), listed, strict=True):
            text = quote(str(value), safe="")
            answer = client.get(f"/v1/recommend/{text}?include_seen=true&k=3").json()
            assert answer["user_id"] == value
            rows = recommender.recommend([raw], 3, include_seen=True).to_dicts()
            assert [entry["score"] for entry in answer["items"]] == pytest.approx([row["score"] for row in rows])
            best = answer["items"][0]["item_id"]
            batch = client.post(
                "/v1/recommend:batch", json={"users": [value], "include_seen": True, "allow": [best]}
            ).json()
            assert [entry["item_id"] for entry in batch["results"][0]["items"]] == [best]
            item = quote(str(best).lower() if best in (True, False) else str(best), safe="")
            explained = client.get(f"/v1/explain/{text}/{item}").json()
            if value == listed[-1]:  # who has no interaction
                assert (answer["fallback"], explained["error"]["code"]) == ("popularity", "nothing_to_explain")
            else:
                assert explained["score"] == pytest.approx(rows[0]["score"], abs=1e-5)
            assert client.get(f"/v1/items/{item}/similar").json()["item_id"] == best
            session = client.post("/v1/recommend:session", json={"history": [best]}).json()
            assert session["unknown_items"] == []
            assert client.get(f"/v1/users/{text}/history").json()["user_id"] == value


def test_a_long_answer_is_the_json_it_would_be_in_one_piece():
    document = {"results": [{"a": 1.5, "b": None}, float("nan"), "é\u2028"], "empty": [], "other": {"x": [1]}, "n": 7}
    assert long_json_bytes(document) == json_bytes(document)


def test_a_batch_takes_little_more_memory_than_its_answer(client):
    model = client.app.state.service.current
    tracemalloc.start()
    content = long_json_bytes({"results": model.lists(range(USERS), RankingOptions(80, include_seen=True))})
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(content) > 5_000_000
    assert most < 5 * len(content)
