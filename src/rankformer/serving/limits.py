"""Bodies that are too large, too slow or too deep are refused before anything parses them."""

import asyncio
import re
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankformer.serving.headers import header
from rankformer.serving.problems import Problem
from rankformer.serving.settings import ServiceSettings

_CLOSE = {"Connection": "close"}  # the rest of such a body is not worth reading
WITHOUT_BODY = frozenset(("GET", "HEAD", "OPTIONS"))
# A JSON string, or the rest of the text when one is never closed: each byte is looked at once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class BodyLimits:
    """Reads the whole body within its limits and hands it on in one piece."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in WITHOUT_BODY:
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                body = await self._read(scope, receive)
        except TimeoutError:
            raise Problem(408, "body_timeout", "the body did not arrive in time", _CLOSE) from None
        if body is None:
            return  # the caller has gone
        self._check(scope, body)
        messages: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            for message in messages:
                return message
            return await receive()

        await self.app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        limit = self.settings.max_body_bytes
        announced = header(scope, b"content-length")
        too_large = Problem(413, "body_too_large", f"a body may have at most {limit} bytes", _CLOSE)
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > limit):
            raise too_large
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > limit:
                raise too_large
            if not message.get("more_body", False):
                return bytes(body)

    def _check(self, scope: Scope, body: bytes) -> None:
        if not body:
            return
        if header(scope, b"content-type").split(";")[0].strip().lower() != "application/json":
            raise Problem(415, "unsupported_media_type", "send the body as application/json")
        if is_deeper(body, self.settings.max_json_depth):
            raise Problem(400, "too_deep", f"JSON may be nested at most {self.settings.max_json_depth} levels deep")


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether JSON is nested more than `limit` levels deep, found without a loop over its bytes.

    Strings go first, then all but the brackets. Taking every `[]` out removes the innermost level, so that after
    `limit` rounds nothing may be left. Brackets that do not match are the parser's business as long as they are few.
    """
    structure = _STRING.sub(b"", body).translate(_BRACKETS, _OTHERS)
    for _ in range(limit):
        if not structure:
            return False
        structure = structure.replace(b"[]", b"")
    return b"[]" in structure or structure.count(b"[") > limit
