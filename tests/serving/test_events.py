"""Events: on disk when acknowledged, in the next list, and across reloads, restarts and kills."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pytest
from tests.ports import free_port

from rankformer.data.journal import Event, JournalReader, JournalWriter
from rankformer.serving.settings import ServiceSettings, Tokens

from .clients import PATIENCE, asking
from .runs import write_run, write_shop


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


def items_of(answer):
    assert answer.status_code == 200, answer.text
    return [entry["item_id"] for entry in answer.json()["items"]]


def send(client, *pairs, **fields):
    answer = client.post("/v1/events", json={"events": [{"user": u, "item": i, **fields} for u, i in pairs]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"] == len(pairs)


def test_known_and_new_users_get_what_fold_in_gives(run_folder, recommender, journal):
    with asking(run_folder, ServiceSettings(journal=journal)) as client:
        before = items_of(client.get("/v1/recommend/u3"))
        assert client.get("/v1/recommend/nobody").json()["fallback"] == "popularity"
        send(client, ("u3", before[0]), ("u3", before[1]), ("nobody", "i5"), ("nobody", "unknown item"))
        after, new = client.get("/v1/recommend/u3"), client.get("/v1/recommend/nobody")
        expected = recommender.recommend_histories({"u3": before[:2]}, extend=True).to_arrow()["item_id"].to_pylist()
        assert items_of(after) == expected
        assert not set(items_of(after)) & set(before[:2])
        alone = recommender.recommend_histories({"nobody": ["i5"]}).to_arrow()["item_id"].to_pylist()
        assert items_of(new) == alone
        assert new.json()["fallback"] is None
        batch = client.post("/v1/recommend:batch", json={"users": ["u3", "u4", "nobody"]}).json()["results"]
        lists = [[entry["item_id"] for entry in each["items"]] for each in batch]
        assert lists == [expected, items_of(client.get("/v1/recommend/u4")), alone]
        history = client.get("/v1/users/u3/history").json()
        assert [entry["item_id"] for entry in history["items"]][-2:] == before[:2]
        reasons = client.get(f"/v1/explain/u3/{expected[0]}").json()
        assert set(before[:2]) <= {reason["item_id"] for reason in reasons["reasons"]}
        assert reasons["score"] == pytest.approx(after.json()["items"][0]["score"], rel=1e-4)


def test_a_session_of_a_known_user(run_folder, recommender, journal):
    with asking(run_folder, ServiceSettings(journal=journal)) as client:
        send(client, ("u3", "i9"))
        answer = client.post("/v1/recommend:session", json={"user": "u3", "history": ["i11", "i12"]})
        expected = recommender.recommend_histories({"u3": ["i9", "i11", "i12"]}, extend=True)
        assert items_of(answer) == expected.to_arrow()["item_id"].to_pylist()
        new = client.post("/v1/recommend:session", json={"user": "someone", "history": ["i11"]})
        assert items_of(new) == items_of(client.post("/v1/recommend:session", json={"history": ["i11"]}))
        body = {"user": "u3", "history": ["i11"], "item": "i20"}
        reasons = client.post("/v1/explain:session", json=body).json()["reasons"]
        known = {f"i{item}" for item in recommender.history_of(recommender.user_ids.index_of(["u3"])[0])}
        assert {each["item_id"] for each in reasons} == known | {"i9", "i11"}


def test_a_method_without_fold_in_leaves_events_out(tmp_path, journal):
    folder = write_run(tmp_path / "plain", fold_in=False)
    with asking(folder, ServiceSettings(journal=journal)) as client:
        before = items_of(client.get("/v1/recommend/u3?k=5"))
        popular = items_of(client.get("/v1/recommend/nobody?k=5"))
        send(client, ("u3", before[1]), ("nobody", popular[0]))
        assert items_of(client.get("/v1/recommend/u3?k=4")) == [before[0], *before[2:]]
        new = client.get("/v1/recommend/nobody?k=4")
        assert items_of(new) == popular[1:]
        assert new.json()["fallback"] == "popularity"
        refused = client.post("/v1/recommend:session", json={"user": "u3", "history": ["i1"]})
        assert refused.status_code == 501


def test_cold_items_that_were_taken_are_left_out(tmp_path, journal):
    with asking(write_shop(tmp_path / "shop"), ServiceSettings(journal=journal)) as client:
        everything = "/v1/recommend/u3?k=1000"
        assert "new-0" in items_of(client.get(everything))
        send(client, ("u3", "new-0"))
        assert "new-0" not in items_of(client.get(everything))
        assert "new-1" in items_of(client.get(everything))


def test_what_no_update_could_learn_is_refused(run_folder, journal):
    with asking(run_folder, ServiceSettings(journal=journal, max_events=3)) as client:
        good = {"user": "u1", "item": "i1"}
        wrong = [
            {"user": 1, "item": "i1"},
            {"user": "", "item": "i1"},  # a missing id, which would stop every update
            {**good, "event": "view"},
            {**good, "weight": 0},
            {**good, "time": "yesterday"},
            {**good, "time": "2999-01-01"},
            {**good, "time": "0000-01-01"},
            {**good, "user": "u" * 2000},
            {**good, "more": 1},
            {"user": "u1"},
        ]
        bodies = [[each] for each in wrong] + [[], [good] * 4]
        for body in bodies:
            assert client.post("/v1/events", json={"events": body}).status_code == 422, body
        assert list(JournalReader(journal).new_events()) == []
        send(client, ("u1", "i1"), time="2026-05-01T12:00:00+02:00", weight=2)
        send(client, ("u1", "i1"), time="0001-01-01t00:00:00.5+14:00")
        event, oldest = JournalReader(journal).new_events()
        assert (event.time, event.weight) == (1777629600_000000, 2)
        assert oldest.time == -62135647199_500000
    tokens = Tokens("x" * 20)
    with asking(run_folder, ServiceSettings(journal=journal), tokens) as client:
        assert client.post("/v1/events", json={"events": [good]}).status_code == 401
    with asking(run_folder) as client:
        assert client.post("/v1/events", json={"events": [good]}).status_code == 501
    small = ServiceSettings(journal=journal, max_journal_bytes=120)
    with asking(run_folder, small) as client:
        full = client.post("/v1/events", json={"events": [good]})
        assert (full.status_code, full.json()["error"]["code"]) == (507, "journal_full")


def test_the_description_has_the_types_and_events_of_the_run(run_folder, tmp_path, journal):
    def described(folder, **options):
        with asking(folder, ServiceSettings(journal=journal, **options)) as client:
            found = client.get("/openapi.json").json()
        assert [path for path in found["paths"] if path.endswith("/events")] == ["/v1/events"]  # there is one journal
        return found["components"]["schemas"]["EventEntry"]

    numbered = {"user_ids": pa.array(range(50), pa.int32()), "item_ids": pa.array(range(30), pa.int64())}
    entry = described(write_run(tmp_path / "numbers", **numbered), compare=run_folder)
    assert entry["properties"]["user"]["type"] == "integer"
    assert entry["properties"]["user"]["maximum"] == 2**31 - 1
    assert "User id" in entry["properties"]["user"]["description"]
    assert described(run_folder)["properties"]["item"]["type"] == "string"
    assert described(run_folder)["properties"]["event"]["type"] == "null"
    weights = {"view": 1.0, "buy": 5.0}
    weighted = described(write_run(tmp_path / "weighted", event_weights=weights))
    assert weighted["properties"]["event"]["enum"] == ["buy", "view"]
    assert "event" in weighted["required"]
    other = described(write_run(tmp_path / "other", event_weights={**weights, "other": 0.5}))
    assert "event" not in other["required"]


def test_events_without_end_are_read_in_a_thread(run_folder, journal):
    """Another process may append far more than a request can read while the event loop waits."""
    writer = JournalWriter(journal)
    with asking(run_folder, ServiceSettings(journal=journal)) as client:
        recent, threads = client.app.state.service.current.recent, []
        catch_up = recent.catch_up
        recent.catch_up = lambda: threads.append(threading.current_thread().name) or catch_up()
        send(client, ("u3", "i9"))
        assert "i9" not in items_of(client.get("/v1/recommend/u3?k=80"))
        assert threads == []
        writer.append([Event(f"u{number % 900}", f"i{number % 70}", number) for number in range(3000)])
        assert not {"i7", "i67", "i57", "i47"} & set(items_of(client.get("/v1/recommend/u7?k=80")))
        assert len(threads) == 1
        assert threads[0].startswith("answer")
    writer.close()


def test_another_process_and_a_reload_see_the_events(run_folder, tmp_path, journal):
    copy = tmp_path / "run"
    shutil.copytree(run_folder, copy)
    tokens = Tokens(None, "a" * 20)
    with (
        asking(run_folder, ServiceSettings(journal=journal)) as one,
        asking(copy, ServiceSettings(journal=journal), tokens) as two,
    ):
        first = items_of(one.get("/v1/recommend/u3"))[0]
        send(one, ("u3", first))
        assert first not in items_of(two.get("/v1/recommend/u3"))
        other = items_of(two.get("/v1/recommend/u3"))[0]
        send(two, ("u3", other))
        assert other not in items_of(one.get("/v1/recommend/u3"))
        reload = two.post("/v1/admin/reload", headers={"Authorization": f"Bearer {'a' * 20}"})
        assert reload.status_code == 200
        assert not {first, other} & set(items_of(two.get("/v1/recommend/u3")))


def test_nothing_acknowledged_is_lost_on_a_kill(run_folder, tmp_path, journal):
    """Twenty kills of a real server, each while events are being sent; each start sees all that was acknowledged."""
    command = [sys.executable, "-m", "tests.serving.forking", str(run_folder), str(journal)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    acknowledged, sent, rng = [], [], np.random.default_rng(0)
    with (
        open(tmp_path / "log", "wb") as log,
        subprocess.Popen(command, **pipes, stderr=log, cwd=Path(__file__).parents[2]) as servers,
    ):
        for number in range(20):
            port = free_port()
            servers.stdin.write(f"{port}\n")
            servers.stdin.flush()
            child = int(servers.stdout.readline())
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                wait_until_ready(client, tmp_path / "log")
                listed = client.get("/v1/recommend/someone?k=80").json()["items"]
                assert not set(acknowledged) & {entry["item_id"] for entry in listed}
                killer = threading.Timer(float(rng.uniform(0, 0.03)), os.kill, (child, signal.SIGKILL))
                for step in range(1000):
                    if step == 3:  # three are acknowledged for sure, and more are on their way
                        killer.start()
                    sent.append(f"i{(number * 7 + step) % 70}")
                    try:
                        answer = client.post("/v1/events", json={"events": [{"user": "someone", "item": sent[-1]}]})
                    except httpx.TransportError:
                        break
                    assert answer.status_code == 200
                    acknowledged.append(sent[-1])
                killer.join()
        servers.stdin.close()
    kept = Counter(event.item for event in JournalReader(journal).new_events())
    assert len(acknowledged) >= 60
    assert Counter(acknowledged) <= kept <= Counter(sent)  # what was cut off before its answer may be there or not


def wait_until_ready(client, log):
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline, log.read_text()
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.02)
