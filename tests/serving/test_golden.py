"""The JSON of every route, recorded once: keys, their order, values, status and headers cannot drift.

`python -m tests.serving.test_golden` records the answers anew, after a change that is meant.
"""

import json
import tempfile
from pathlib import Path

import pytest

from .clients import asking
from .runs import write_run

GOLDEN = Path(__file__).with_name("golden.json")
GETS = (
    *(
        "/livez",
        "/readyz",
        "/v1/model",
        "/v1/users?limit=2",
        "/v1/users?query=u29",
        "/v1/items?query=title%207&limit=3",
    ),
    *("/v1/users/u4/history?limit=3", "/v1/users/u999/history", "/v1/items/i4/similar?k=3", "/v1/explain/u4/i3"),
    *("/v1/recommend/u4?k=3", "/v1/recommend/u4?k=80&include_seen=true&allow=i1&allow=i10&allow=no&block=i10"),
    *(
        "/v1/recommend/nobody?fallback=none",
        "/v1/recommend/nobody?k=2",
        "/v1/recommend/u999?k=2",
        "/v1/explain/u999/i3",
    ),
    *(
        "/v1/recommend/u999?fallback=none",
        "/v1/recommend/u4?fallback=random",
        "/v1/recommend/u4?k=0",
        "/v1/recommend/u4?k=1001",
        "/v1/recommend/u4?k=ten",
    ),
    *("/v1/recommend/u4?k=1&k=2", "/v1/recommend/u4?other=1", "/v1/recommend/u4?include_seen=yes", "/v1/users?limit=0"),
    *("/v1/recommend/u4?allow=nothing", "/v1/items/nothing/similar", "/v1/explain/nobody/i1", "/v1/explain/u1/nothing"),
    *("/v1/users/nobody/history", "/nothing", "/v1/recommend:batch", "/v1/items?query=" + "x" * 201),
)
POSTS = (
    ("/v1/recommend:batch", {"users": ["u3", "nobody", 7, 1.5, True], "k": 2, "fallback": "none"}),
    ("/v1/recommend:batch", {"users": ["u3", "nobody", 7, "u999"], "k": 2}),
    ("/v1/recommend:batch", {"users": ["u3"], "allow": ["i1", "i2"], "block": ["i2"], "include_seen": True}),
    ("/v1/recommend:batch", {"users": []}),
    ("/v1/recommend:batch", {"users": [None]}),
    ("/v1/recommend:batch", {"users": ["u1"] * 1001}),
    ("/v1/recommend:batch", {"users": ["u1"] * 101, "k": 1000}),
    ("/v1/recommend:batch", {"users": ["u1"], "k": "10"}),
    ("/v1/recommend:batch", {"users": ["u1"], "block": ["nothing"]}),
    ("/v1/recommend:batch", {"extra": 1}),
    ("/v1/recommend:session", {"history": ["i1", "i2", "nothing", True, "i2"], "k": 3, "block": ["i9"]}),
    ("/v1/recommend:session", {"history": [], "k": 2}),
    ("/v1/recommend:session", {"history": ["nothing"], "k": 2, "fallback": "none"}),
    ("/v1/explain:session", {"history": ["i1", "nothing", "i5", "i1"], "item": "i3"}),
    ("/v1/explain:session", {"history": ["nothing"], "item": "i3"}),
    ("/v1/explain:session", {"history": ["i1"], "item": ["i3"]}),
    ("/v1/explain:session", {"history": [[[[[[[[[]]]]]]]]], "item": 1}),
    ("/v1/admin/reload", {}),
)


def answers(client):
    """Every request with what came back; what differs from run to run is left out."""
    version = client.get("/readyz").json()["model_version"]
    for method, path, body in [("GET", path, None) for path in GETS] + [("POST", *post) for post in POSTS]:
        answer = client.request(method, path, json=body)
        varying = ("content-length", "x-request-id")
        headers = {name: value for name, value in sorted(answer.headers.items()) if name not in varying}
        document = json.loads(answer.text.replace(version, "VERSION"))
        if path == "/v1/model":
            document.update(created="CREATED", versions={})
        yield {"request": f"{method} {path}", "status": answer.status_code, "headers": headers, "body": document}


def same(one, other):
    """Whether two documents are equal, the order of their keys included; scores may differ by rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return other == pytest.approx(one, rel=1e-4, abs=1e-5)
    return type(one) is type(other) and one == other


def test_the_service_answers_as_recorded(client):
    recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = list(answers(client))
    assert [entry["request"] for entry in found] == [entry["request"] for entry in recorded]
    for was, now in zip(recorded, found, strict=True):
        assert same(was, now), (was, now)


def test_json_is_written_without_spaces_and_escapes(client):
    answer = client.get("/v1/items?query=i4&limit=1")
    assert answer.content == json.dumps(answer.json(), ensure_ascii=False, separators=(",", ":")).encode()
    assert "é".encode() in answer.content


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, asking(write_run(Path(folder) / "toy")) as asked:
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in answers(asked))
        GOLDEN.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
