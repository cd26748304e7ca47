"""Health, metrics, and the hot swap of the model."""

import asyncio
import gc
import logging
import shutil
import threading
import weakref

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankformer.errors import RunFolderError
from rankformer.runs.saved import load_run
from rankformer.serving.server import create_app
from rankformer.serving.settings import ServiceSettings, Tokens

from .clients import asking, asking_at_once
from .runs import point, write_two_runs

ADMIN = "admin-token-0123456789"
HEADERS = {"Authorization": f"Bearer {ADMIN}"}


def samples(client):
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


def reload(client):
    return client.post("/v1/admin/reload", headers=HEADERS)


@pytest.fixture
def runs(tmp_path):
    """Two runs and a link that leads to the first."""
    point(write_two_runs(tmp_path) / "current", tmp_path / "one")
    return tmp_path


def test_alive_and_ready(client):
    assert client.get("/livez").json() == {"status": "ok"}
    assert client.get("/readyz").json()["status"] == "ok"


def test_a_new_model_takes_over(runs):
    with asking(runs / "current", tokens=Tokens(admin=ADMIN)) as client:
        before = client.get("/v1/recommend/u1").json()
        point(runs / "current", runs / "two")
        assert client.get("/v1/recommend/u1").json() == before  # until somebody says so
        answer = reload(client).json()
        assert answer["previous_version"] == before["model_version"] != answer["model_version"]
        after = client.get("/v1/recommend/u1").json()
        assert after["model_version"] == answer["model_version"]
        rows = load_run(runs / "two").recommender.recommend(["u1"], 10).to_dicts()
        assert [entry["item_id"] for entry in after["items"]] == [row["item_id"] for row in rows]


def test_the_old_model_is_let_go(runs):
    with asking(runs / "current", tokens=Tokens(admin=ADMIN)) as client:
        client.get("/v1/recommend/u1")
        client.post("/v1/recommend:batch", json={"users": ["u1"]})
        old = weakref.ref(client.app.state.service.current)
        assert reload(client).status_code == 200
        client.get("/v1/recommend/u1")  # the thread that answers keeps its last question until the next
        client.post("/v1/recommend:batch", json={"users": ["u1"]})
        gc.collect()
        assert old() is None


@pytest.mark.parametrize("damage", ["a bit", "gone", "no manifest", "nothing there", "a file"])
def test_a_broken_model_leaves_the_old_one(runs, damage, caplog):
    with asking(runs / "current", tokens=Tokens(admin=ADMIN)) as client:
        before = client.get("/v1/recommend/u1").json()
        broken = runs / "two"
        if damage == "a bit":
            content = bytearray((broken / "embeddings.safetensors").read_bytes())
            content[-5] ^= 1
            (broken / "embeddings.safetensors").write_bytes(content)
        elif damage == "gone":
            (broken / "users.parquet").unlink()
        elif damage == "no manifest":
            (broken / "manifest.json").unlink()
        else:
            shutil.rmtree(broken)
            if damage == "a file":
                broken.write_text("no run")
        point(runs / "current", broken)
        with caplog.at_level(logging.ERROR, "rankformer.serving"):
            answer = reload(client)
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "reload_failed"
        assert str(runs) not in answer.text
        assert str(broken) in caplog.text  # the one who runs the service is told
        assert ADMIN not in caplog.text
        assert client.get("/v1/recommend/u1").json() == before
        assert client.get("/readyz").status_code == 200
        counts = samples(client)
        assert counts["rankformer_reloads_total", ("outcome", "failed")] == 1
        assert counts["rankformer_reloads_total", ("outcome", "ok")] == 1
        point(runs / "current", runs / "one")
        assert reload(client).status_code == 200


def held(model):
    """Let the model wait for a gate before it answers; returns the gate and a sign that it has been asked."""
    gate, asked, lists = threading.Event(), threading.Event(), model.lists

    def waiting(*arguments):
        asked.set()
        assert gate.wait(30)
        return lists(*arguments)

    model.lists = waiting
    return gate, asked


@pytest.mark.parametrize("batching", [True, False])
def test_an_answer_under_way_finishes_on_the_model_it_began_with(runs, batching):
    async def scenario():
        settings = ServiceSettings(batching=batching)
        async with asking_at_once(runs / "current", settings, Tokens(admin=ADMIN)) as (client, app):
            old = app.state.service.current
            gate, asked = held(old)
            waiting = asyncio.ensure_future(client.get("/v1/recommend/u1"))
            await asyncio.to_thread(asked.wait)
            queued = asyncio.ensure_future(client.get("/v1/recommend/u2"))
            await asyncio.sleep(0.01)
            point(runs / "current", runs / "two")
            new = (await client.post("/v1/admin/reload", headers=HEADERS)).json()["model_version"]
            late = asyncio.ensure_future(client.get("/v1/recommend/u1"))
            await asyncio.sleep(0.01)
            gate.set()
            versions = [answer.json()["model_version"] for answer in await asyncio.gather(waiting, queued, late)]
            assert versions == [old.version, old.version, new]

    asyncio.run(scenario())


def test_two_reloads_at_once(runs, monkeypatch):
    from rankformer.serving import service

    gate = threading.Event()
    real = service.load_served_model

    async def scenario():
        async with asking_at_once(runs / "current", tokens=Tokens(admin=ADMIN)) as (client, app):

            def slow(*arguments):
                gate.wait(30)
                return real(*arguments)

            monkeypatch.setattr(service, "load_served_model", slow)
            first = asyncio.ensure_future(client.post("/v1/admin/reload", headers=HEADERS))
            while not app.state.service.loads.busy:
                await asyncio.sleep(0.001)
            second = await client.post("/v1/admin/reload", headers=HEADERS)
            assert second.status_code == 409
            assert second.json()["error"]["code"] == "reload_running"
            for _ in range(5):
                app.state.service.load_soon()  # signals: one more load, not five
            gate.set()
            assert (await first).status_code == 200
            while (loads := _loads(app)) < 3 or app.state.service.loads.busy:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert _loads(app) == loads == 3

    asyncio.run(scenario())


def _loads(app):
    return app.state.service.metrics.registry.get_sample_value("rankformer_reloads_total", {"outcome": "ok"})


@pytest.mark.parametrize("batching", [True, False])
def test_a_full_queue_answers_429_and_recovers(run_folder, batching):
    settings = ServiceSettings(batching=batching, queue_size=2, batch_size=1, workers=1, retry_after=7)

    async def scenario():
        async with asking_at_once(run_folder, settings) as (client, app):
            gate, asked = held(app.state.service.current)
            running = [asyncio.ensure_future(client.get("/v1/recommend/u1"))]
            await asyncio.to_thread(asked.wait)
            running += [asyncio.ensure_future(client.get(f"/v1/recommend/u{number}")) for number in range(2)]
            await asyncio.sleep(0.01)
            refused = await client.get("/v1/recommend/u5")
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "7"
            assert refused.json()["error"]["code"] == "too_many_requests"
            gate.set()
            assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}
            assert (await client.get("/v1/recommend/u5")).status_code == 200
            value = app.state.service.metrics.registry.get_sample_value
            assert value("rankformer_rejections_total", {"reason": "too_many_requests"}) == 1

    asyncio.run(scenario())


def test_heavy_calls_are_bounded_too(run_folder):
    async def scenario():
        async with asking_at_once(run_folder, ServiceSettings(workers=1, waiting=0)) as (client, app):
            gate, asked = held(app.state.service.current)
            running = asyncio.ensure_future(client.post("/v1/recommend:batch", json={"users": ["u1"]}))
            await asyncio.to_thread(asked.wait)
            for url in ("/v1/users", "/v1/items/i1/similar", "/v1/explain/u1/i1"):
                answer = await client.get(url)
                assert answer.status_code == 429
                assert answer.headers["retry-after"] == "1"
            assert (await client.get("/livez")).status_code == 200
            gate.set()
            assert (await running).status_code == 200

    asyncio.run(scenario())


def test_an_answer_that_takes_too_long(run_folder):
    async def scenario():
        settings = ServiceSettings(request_timeout=0.05, body_timeout=0.05)
        async with asking_at_once(run_folder, settings) as (client, app):
            gate, _ = held(app.state.service.current)
            answer = await client.get("/v1/recommend/u1")
            gate.set()
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "timeout"
            assert "retry-after" in answer.headers

    asyncio.run(scenario())


def test_too_many_requests_at_once(run_folder):
    async def scenario():
        async with asking_at_once(run_folder, ServiceSettings(max_in_flight=2)) as (client, app):
            gate, asked = held(app.state.service.current)
            running = [asyncio.ensure_future(client.get("/v1/recommend/u1")) for _ in range(2)]
            await asyncio.to_thread(asked.wait)
            answer = await client.get("/v1/recommend/u1")
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert (await client.get("/livez")).status_code == 200
            gate.set()
            assert {answer.status_code for answer in await asyncio.gather(*running)} == {200}

    asyncio.run(scenario())


def test_starting_and_stopping_answer_503(run_folder):
    import httpx

    async def scenario():
        app = create_app(run_folder)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            for url in ("/readyz", "/v1/recommend/u1", "/v1/model"):
                answer = await client.get(url)  # nothing has been loaded yet
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "starting"
                assert "retry-after" in answer.headers
            assert (await client.get("/livez")).status_code == 200
            async with app.router.lifespan_context(app):
                while app.state.service.current is None:
                    await asyncio.sleep(0.005)
                assert (await client.get("/readyz")).status_code == 200
            for url in ("/readyz", "/v1/recommend/u1", "/v1/users"):
                answer = await client.get(url)
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "stopping"

    asyncio.run(scenario())


def test_a_first_model_that_is_broken_is_reported(tmp_path):
    async def scenario():
        app = create_app(tmp_path)
        async with app.router.lifespan_context(app):
            while app.state.service.failure is None:
                await asyncio.sleep(0.001)
        assert isinstance(app.state.service.failure, RunFolderError)

    asyncio.run(scenario())


def test_what_is_counted(run_folder):
    with asking(run_folder) as client:
        for url in (
            "/v1/recommend/u1",
            "/v1/recommend/u2",
            "/v1/recommend/nobody?fallback=none",
            "/v1/recommend/u1?k=0",
            "/etc/passwd",
        ):
            client.get(url)
        client.request("BREW", "/v1/recommend/u1")
        client.post("/v1/recommend:batch", json={"users": ["x", "y"]})
        client.post("/v1/recommend:session", json={"history": ["x"]})
        counts = samples(client)
        route = ("route", "/v1/recommend/{user}")
        name, get = "rankformer_requests_total", ("method", "GET")
        assert counts[name, get, route, ("status", "200")] == 2
        assert counts[name, get, route, ("status", "404")] == 1
        assert counts[name, get, route, ("status", "422")] == 1
        assert counts[name, get, ("route", "unmatched"), ("status", "404")] == 1
        assert counts[name, ("method", "other"), route, ("status", "405")] == 1
        assert counts["rankformer_request_seconds_count", route] == 5
        assert counts["rankformer_unknown_ids_total", ("kind", "user")] == 3
        assert counts["rankformer_unknown_ids_total", ("kind", "item")] == 1
        assert counts[("rankformer_requests_in_flight",)] == 1  # the one that asks
        assert counts[("rankformer_batch_users_count",)] == 2
        assert counts[("rankformer_model_age_seconds",)] >= 0
        [info] = [labels for labels in counts if labels[0] == "rankformer_model_info"]
        assert ("version", client.get("/readyz").json()["model_version"]) in info
        assert "passwd" not in client.get("/metrics").text


def test_the_log_has_neither_queries_nor_tokens(run_folder, caplog):
    with caplog.at_level(logging.INFO), asking(run_folder, tokens=Tokens(access=ADMIN)) as client:
        client.get("/v1/recommend/u%0A1?k=1&secret=query", headers=HEADERS)
        client.get("/v1/users", headers={"Authorization": "Bearer wrong-token"})
    lines = [record.getMessage() for record in caplog.records if record.name == "rankformer.serving.access"]
    assert lines[-2].startswith("GET /v1/recommend/u%0A1 422 ")
    assert lines[-1].startswith("GET /v1/users 401 ")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("rankformer"))
    assert not any(word in ours for word in ("secret", ADMIN, "wrong-token"))


def test_an_error_nobody_foresaw_says_nothing_about_itself(run_folder, caplog):
    with asking(run_folder) as client:

        def broken(*_):
            raise RuntimeError("/home/someone/secret")

        client.app.state.service.current.lists = broken
        answer = client.get("/v1/recommend/u1")
        assert answer.status_code == 500
        assert answer.json() == {
            "error": {"code": "internal_error", "message": "something went wrong here; the log of the service has more"}
        }
        assert "secret" in caplog.text


def test_too_little_memory_is_not_an_error_of_the_service(run_folder, caplog):
    with asking(run_folder) as client:

        def too_large(*_):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

        client.app.state.service.current.lists = too_large
        answer = client.get("/v1/recommend/u1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert "retry-after" in answer.headers
        assert "needs more memory" in caplog.text


def test_headers_of_every_answer(client):
    for url in ("/", "/v1/model", "/nothing", "/metrics", "/openapi.json", "/v1/recommend/nobody"):
        answer = client.get(url, headers={"Origin": "https://elsewhere.example"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert "content-security-policy" in client.get("/").headers


def test_no_page_that_loads_from_elsewhere(client):
    for url in ("/docs", "/redoc"):
        assert client.get(url).status_code == 404


def test_the_description_has_examples_and_limits(client):
    document = client.get("/openapi.json").json()

    def schema_of(content):
        return document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]

    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            for content in operation.get("requestBody", {}).get("content", {}).values():
                assert schema_of(content)["example"]
    recommend = document["paths"]["/v1/recommend/{user}"]["get"]["parameters"]
    limits = {parameter["name"]: parameter["schema"] for parameter in recommend}
    assert (limits["k"]["minimum"], limits["k"]["maximum"], limits["allow"]["maxItems"]) == (1, 1000, 2**20)
    batch = schema_of(document["paths"]["/v1/recommend:batch"]["post"]["requestBody"]["content"]["application/json"])
    assert (batch["properties"]["k"]["minimum"], batch["properties"]["k"]["maximum"]) == (1, 1000)
    assert batch["properties"]["allow"]["anyOf"][0]["maxItems"] == 2**20
    assert batch["properties"]["users"]["maxItems"] == 1000
    assert batch["additionalProperties"] is False


def test_limits_are_those_of_the_service(run_folder):
    limits = {"max_k": 3, "max_users": 2, "max_history": 2, "max_filter": 1, "max_listed": 2}
    with asking(run_folder, ServiceSettings(**limits)) as client:
        document = client.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        assert schemas["BatchRequest"]["properties"]["users"]["maxItems"] == 2
        assert schemas["SessionRequest"]["properties"]["history"]["maxItems"] == 2
        assert client.get("/v1/recommend/u1?k=3&allow=i1").status_code == 200
        for url in ("/v1/recommend/u1?k=4", "/v1/recommend/u1?allow=i1&allow=i2", "/v1/users?limit=3"):
            assert client.get(url).status_code == 422
        for url, body in (
            ("recommend:batch", {"users": ["u1", "u2", "u3"]}),
            ("recommend:batch", {"users": ["u1"], "k": 4}),
            ("recommend:session", {"history": ["i1", "i2", "i3"]}),
            ("recommend:session", {"history": ["i1"], "block": ["i1", "i2"]}),
            ("explain:session", {"history": ["i1", "i2", "i3"], "item": "i4"}),
        ):
            assert client.post(f"/v1/{url}", json=body).status_code == 422
