"""Host names, tokens, escaped paths, and the limits of a body."""

import asyncio
import json
import threading
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankformer.serving.errors import ApiError
from rankformer.serving.middleware import escaped_path, has_more_values, is_deeper, read_body, unescaped
from rankformer.serving.settings import ServiceSettings, Tokens

from .clients import asking, asking_at_once
from .malformed import JSON

ACCESS, ADMIN = "access-token-0123456789", "admin-token-0123456789"


@pytest.mark.parametrize("segments", [["a/b"], ["%2F", "%"], ["%25", "é☃", "a b"], ["..", "."], ["a%2Fb/c"]])
def test_a_segment_comes_out_as_it_was_meant(segments):
    from urllib.parse import quote

    raw = "/".join(["", *(quote(segment, safe="") for segment in segments)]).encode()
    path = escaped_path({"raw_path": raw, "path": "ignored"})
    assert [unescaped(part) for part in path.split("/")[1:]] == segments
    assert path == "/".join(["", *(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)])


@pytest.fixture(scope="module")
def guarded(run_folder):
    with asking(run_folder, ServiceSettings(allowed_hosts=("never.used",)), Tokens(ACCESS, ADMIN)) as client:
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path", ["/v1/recommend/u1", "/v1/model", "/v1/users", "/v1/no-such-thing", "/v1", "/%76%31/model"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(ADMIN),
        bearer(""),
        bearer(ACCESS[:-1]),
        bearer(ACCESS + "x"),
        {"Authorization": ACCESS},
        {"Authorization": f"Basic {ACCESS}"},
        {"Authorization": "Bearer é".encode("latin-1")},
    ],
)
def test_without_the_token_nothing_under_v1_answers(guarded, path, headers):
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ACCESS not in answer.text


def test_with_the_token_it_does(guarded):
    assert guarded.get("/v1/recommend/u1", headers=bearer(ACCESS)).status_code == 200
    assert guarded.get("/v1/recommend/u1", headers={"authorization": f"bearer {ACCESS}"}).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/openapi.json"])
def test_what_holds_no_data_is_open(guarded, path):
    assert guarded.get(path).status_code == 200


def test_reloading_takes_the_admin_token_and_no_other(guarded):
    assert guarded.post("/v1/admin/reload", headers=bearer(ACCESS)).status_code == 401
    assert guarded.post("/v1/admin/reload").status_code == 401
    assert guarded.post("/v1/admin/reload", headers=bearer(ADMIN)).status_code == 200


def test_without_an_admin_token_there_is_no_reloading(client):
    answer = client.post("/v1/admin/reload", headers=bearer(""))
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "admin_disabled"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "0.0.0.0"])
def test_an_open_service_does_not_answer_to_foreign_names(client, host):
    answer = client.get("/v1/model", headers={"Host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"])
def test_it_answers_to_the_names_of_this_machine(client, host):
    assert client.get("/v1/model", headers={"Host": host}).status_code == 200


def test_further_names_can_be_allowed_and_a_token_makes_them_needless(run_folder, guarded):
    with asking(run_folder, ServiceSettings(allowed_hosts=("Shop.Example",))) as client:
        assert client.get("/v1/model", headers={"Host": "shop.example:443"}).status_code == 200
    assert guarded.get("/v1/model", headers={**bearer(ACCESS), "Host": "any.example"}).status_code == 200


def test_the_description_tells_where_tokens_are_needed(client, guarded):
    with_token, without = (one.get("/openapi.json").json()["paths"] for one in (guarded, client))
    assert with_token["/v1/model"]["get"]["security"] == [{"token": []}]
    assert "security" not in without["/v1/model"]["get"]
    assert without["/v1/admin/reload"]["post"]["security"] == [{"admin_token": []}]


SETTINGS = ServiceSettings(max_body_bytes=100, max_json_depth=3, body_timeout=0.05)
TRICKY_TEXT = st.text(alphabet='[]{}"\\a')
DOCUMENTS = st.recursive(
    st.none() | st.integers() | TRICKY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY_TEXT, inner, max_size=3),
    max_leaves=30,
)


def depth(document):
    if isinstance(document, dict):
        return 1 + max(map(depth, document.values()), default=0)
    return 1 + max(map(depth, document), default=0) if isinstance(document, list) else 0


@given(DOCUMENTS, st.integers(1, 6))
def test_the_depth_is_that_of_the_document(document, limit):
    assert is_deeper(json.dumps(document).encode(), limit) == (depth(document) > limit)


@given(st.binary() | st.text(alphabet='[]{}",:\\0').map(str.encode))
def test_whatever_is_not_called_too_deep_can_be_given_to_a_parser(body):
    if not is_deeper(body, 8):
        try:
            json.loads(body)
        except RecursionError:
            raise AssertionError("too deep") from None
        except ValueError:
            pass


@pytest.mark.parametrize(
    "body",
    [b"[" * 10**6, b'{"a":' * 10**5, b"[" * 9 + b"]" * 9, b'"' + b"[" * 9 + b'"' + b"[" * 9, b"[]" * 9 + b"[" * 9],
)
def test_deep_bodies(body):
    assert is_deeper(body, 8)


@pytest.mark.parametrize("body", [b'"\\"' * 10**5, b'"' + b'\\"' * 10**6 + b"\\", b"[]" * 10**6, b'"' * 10**6])
def test_long_bodies_that_are_flat_take_no_longer_than_their_length(body):
    assert not is_deeper(body, 8)  # anything quadratic would take hours here


def send(body_parts, headers=(), content_type=b"application/json", delay=0.0):
    """The body as it is read from a request, or the error it is refused with."""
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body_parts[:-1]]
    messages = iter([*parts, {"type": "http.request", "body": body_parts[-1]}])

    async def receive():
        await asyncio.sleep(delay)
        return next(messages)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", content_type), *headers]}
    return asyncio.run(read_body(scope, receive, SETTINGS))


def test_a_body_arrives_whole():
    assert send([b"[1,", b"", b"2]"]) == b"[1,2]"
    assert send([b"[" + b" " * 98 + b"]"]) == b"[" + b" " * 98 + b"]"


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        ([b"x" * 101], [], 413),
        ([b"x" * 60, b"x" * 60, b""], [], 413),
        ([b"1"], [(b"content-length", b"101")], 413),
        ([b"1"], [(b"content-length", b"9" * 5000)], 413),
        ([b"[[[[1]]]]"], [], 400),
    ],
)
def test_too_much(parts, headers, status):
    with pytest.raises(ApiError) as error:
        send(parts, headers)
    assert error.value.status == status


def test_a_slow_body():
    with pytest.raises(ApiError) as error:
        send([b"1"] * 20, delay=0.02)
    assert error.value.status == 408
    assert error.value.headers == {"Connection": "close"}


def test_a_body_that_is_something_else():
    with pytest.raises(ApiError) as error:
        send([b"a=b"], content_type=b"application/x-www-form-urlencoded")
    assert error.value.status == 415


@given(DOCUMENTS)
def test_a_document_of_half_as_many_values_is_not_refused(document):
    def count(value):
        inner = (
            [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
        )
        return 1 + sum(map(count, inner))

    assert not has_more_values(json.dumps(document).encode(), 2 * count(document))


@pytest.mark.parametrize(
    "entry", [b"[]", b"{}", b"1", b'""', b"null", b"[[[]]]", b'{"":0}', b'"\\""', b"[1,1]", b'{"a":[]}', b"1e5"]
)
@pytest.mark.parametrize("whole", [b'{"users":[%s]}', b'{"item":[%s]}', b"[%s]", b'{"":{"":[%s]}}', b"%s"])
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(entry, whole):
    """The parser would hold gigabytes for a megabyte of these, and build an error for each."""
    limit = ServiceSettings().max_json_values
    assert has_more_values(whole % b",".join([entry] * (limit + 2)), limit)


@pytest.mark.parametrize(("names", "expected"), [(900, 422), (1200, 413)])
def test_many_fields_are_refused_before_each_becomes_an_error(client, names, expected):
    body = "{" + ",".join(f'"a:{number}":1' for number in range(names)) + "}"
    answer = client.post("/v1/recommend:batch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == expected


@pytest.mark.parametrize("path", ["/v1/recommend:batch", "/v1/recommend:session", "/v1/explain:session"])
@pytest.mark.parametrize("field", ["users", "history", "item", "allow", "extra"])
def test_one_megabyte_of_empty_lists_is_too_large(client, path, field):
    body = b'{"%s":[%s]}' % (field.encode(), b",".join([b"[]"] * 349_000))
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("function", ["middleware._check_json", "schemas.BatchRequest.model_validate_json"])
def test_the_event_loop_answers_while_a_large_body_is_read(run_folder, monkeypatch, function):
    """A body that is being checked, parsed or answered must not stand in the way of others."""
    started, proceed = threading.Event(), threading.Event()
    module, _, name = function.rpartition(".")
    module, _, owner = module.partition(".")
    target = import_module(f"rankformer.serving.{module}")
    target = getattr(target, owner) if owner else target
    real = getattr(target, name)

    def held(*arguments):
        started.set()
        assert proceed.wait(20)
        return real(*arguments)

    monkeypatch.setattr(target, name, held)
    body = json.dumps({"users": ["u1"], "block": ["x" * 100] * 1000, "allow": ["i1"]}).encode()

    async def ask():
        async with asking_at_once(run_folder) as (client, _):
            large = asyncio.create_task(client.post("/v1/recommend:batch", content=body, headers=JSON))
            assert await asyncio.to_thread(started.wait, 20)
            alive = await asyncio.wait_for(client.get("/livez"), 20)
            proceed.set()
            return alive.status_code, (await large).status_code

    assert asyncio.run(ask()) == (200, 404)
