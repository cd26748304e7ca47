import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankformer.serving.limits import BodyLimits, is_deeper
from rankformer.serving.problems import Problem
from rankformer.serving.settings import ServiceSettings

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


def send(body_parts, headers=(), method="POST", delay=0.0):
    """What the application gets to see of a request, or the problem it is refused with."""
    seen = []
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body_parts[:-1]]
    messages = iter([*parts, {"type": "http.request", "body": body_parts[-1], "more_body": False}])

    async def app(scope, receive, send):
        seen.append(await receive())

    async def receive():
        await asyncio.sleep(delay)
        return next(messages)

    scope = {"type": "http", "method": method, "headers": [(b"content-type", b"application/json"), *headers]}
    asyncio.run(BodyLimits(app, SETTINGS)(scope, receive, None))
    return seen[0]["body"]


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
    with pytest.raises(Problem) as problem:
        send(parts, headers)
    assert problem.value.status == status


def test_a_slow_body():
    with pytest.raises(Problem) as problem:
        send([b"1"] * 20, delay=0.02)
    assert problem.value.status == 408
    assert problem.value.headers == {"Connection": "close"}


def test_a_body_that_is_something_else():
    async def app(scope, receive, send):
        raise AssertionError("it should not come this far")

    async def receive():
        return {"type": "http.request", "body": b"a=b"}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/x-www-form-urlencoded")]}
    with pytest.raises(Problem) as problem:
        asyncio.run(BodyLimits(app, SETTINGS)(scope, receive, None))
    assert problem.value.status == 415
