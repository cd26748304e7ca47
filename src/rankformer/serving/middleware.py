"""The ASGI middleware of the service: metrics and log, limits of number, time and body, host name and token."""

import asyncio
import hmac
import logging
import re
import secrets
import time
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankformer.errors import is_out_of_memory
from rankformer.serving.errors import ApiError, from_exception
from rankformer.serving.service import Service
from rankformer.serving.settings import ADMIN_TOKEN_VARIABLE, ServiceSettings, Tokens, is_loopback

logger = logging.getLogger("rankformer.serving")
access_logger = logging.getLogger("rankformer.serving.access")

_WITH_TOKEN = "/v1"
_ADMIN = "/v1/admin"
_NEVER_REJECTED = frozenset(("/livez", "/readyz", "/metrics"))
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_WITHOUT_BODY = frozenset(("GET", "HEAD", "OPTIONS"))
_CLOSE = {"Connection": "close"}  # the rest of such a body is not worth reading
_CLIENT_GONE = 499  # counted when the caller left before the answer; never sent
_PART_BYTES = 2**16  # of an answer, sent at once
_SMALL_BODY = 2**14  # bytes that are checked faster than a thread is found
# A JSON string, or the rest of the text when one is never closed: each byte is looked at once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_MOST_NAMES = 1000  # of fields in a body, which each cost an error of their own where they are not known
_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)  # that a caller may give
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


class ServiceMiddleware:
    """Stands between the server and the routes: counts, logs, bounds and checks requests, and answers exceptions."""

    def __init__(self, app: ASGIApp, service: Service, tokens: Tokens) -> None:
        self.app = app
        self.service = service
        self.settings = service.settings
        self.tokens = tokens
        self.allowed_hosts = {name.lower() for name in self.settings.allowed_hosts}
        self.in_flight = 0
        self.waiting_bytes = 0  # of large answers that are being sent
        service.metrics.in_flight.set_function(lambda: self.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens inside."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8).encode()
        waiting = 0  # bytes of this answer that count as waiting to be read

        async def watched_send(message: Message) -> None:
            nonlocal status, waiting
            if message["type"] == "http.response.start":
                waiting = self._admit(int(Headers(raw=message["headers"]).get("content-length", 0)))
                status = message["status"]
                headers = [(b"x-content-type-options", b"nosniff"), (b"x-request-id", request_id)]
                if self.service.retiring:
                    headers.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *headers]
                await send(message)
                return
            # In parts, each sent once the caller has read enough of those before it.
            body, last = memoryview(message.get("body", b"")), not message.get("more_body", False)
            for start in range(0, max(len(body), 1), _PART_BYTES):
                more = start + _PART_BYTES < len(body) or not last
                await send({**message, "body": bytes(body[start : start + _PART_BYTES]), "more_body": more})

        self.in_flight += 1
        try:
            await self._bounded(scope, receive, watched_send)
        except Exception as error:
            answer = from_exception(error)
            if answer.status == 500 and is_out_of_memory(error):
                logger.error("request %s needs more memory than there is", request_id.decode())
                answer = self.service.rejected(503, "overloaded", "this needs more memory than there is now")
            elif answer.status == 500:
                extra = {"request": {"request_id": request_id.decode()}}
                logger.exception("request %s failed unexpectedly", request_id.decode(), extra=extra)
            if not status:
                await answer.response()(scope, receive, watched_send)
        finally:
            self.in_flight -= 1
            self.waiting_bytes -= waiting
            self._record(scope, status or _CLIENT_GONE, time.perf_counter() - started, request_id.decode())

    def _admit(self, size: int) -> int:
        """Return how much of an answer counts as waiting to be read, or refuse one for which there is no room."""
        if size <= _PART_BYTES:
            return 0
        if self.waiting_bytes and self.waiting_bytes + size > self.settings.max_answer_bytes:
            raise self.service.rejected(503, "overloaded", "too many large answers wait to be read")
        self.waiting_bytes += size
        return size

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within the limits of number and time."""
        if self.in_flight > self.settings.max_in_flight and scope["path"] not in _NEVER_REJECTED:
            raise self.service.rejected(503, "overloaded", "too many requests at once")
        limit = self.settings.request_timeout
        if scope["method"] not in _WITHOUT_BODY:
            limit += self.settings.body_timeout  # the time that a body may take to arrive comes on top
        is_load = scope["path"].startswith(_ADMIN)  # which takes as long as the model is large
        try:
            async with asyncio.timeout(None if is_load else limit) as timer:

                async def send_found(message: Message) -> None:
                    timer.reschedule(None)  # how long the caller may take to read is the connection's limit
                    await send(message)

                await self._checked(scope, receive, send_found)
        except TimeoutError:
            if not timer.expired():
                raise
            raise self.service.rejected(503, "timeout", "no answer was found in time") from None

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose host name, token and body are right; its body goes with it, as scope["body"]."""
        scope["path"], headers = escaped_path(scope), Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:  # two readers could disagree where it ends
            raise ApiError(400, "two_lengths", "send Content-Length or Transfer-Encoding, not both", _CLOSE)
        if self.tokens.access is None:
            self._check_host(headers.get("host", ""))
        self._check_token(scope)
        if scope["method"] not in _WITHOUT_BODY:
            scope["body"] = await read_body(scope, receive, self.settings)
            if scope["body"] is None:
                return  # the caller has gone
        await self.app(scope, receive, send)

    def _check_host(self, host: str) -> None:
        """Refuse foreign names: a web page could point a name of its own here and read what its visitor may read."""
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
        if name and not is_loopback(name) and name.lower() not in self.allowed_hosts:
            raise ApiError(421, "unknown_host", "this service does not answer to that name; see --allow-host")

    def _check_token(self, scope: Scope) -> None:
        path = f"{scope['path']}/"
        if path.startswith(f"{_ADMIN}/"):
            if self.tokens.admin is None:
                raise ApiError(403, "admin_disabled", f"this service was started without {ADMIN_TOKEN_VARIABLE}")
            expected = self.tokens.admin
        elif self.tokens.access is not None and path.startswith(f"{_WITH_TOKEN}/"):
            expected = self.tokens.access
        else:
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), expected.encode())
        if not right or scheme.lower() != "bearer":
            message = "send the token as `Authorization: Bearer ...`"
            raise ApiError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route: str = getattr(scope.get("route"), "path_format", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.service.metrics.requests.labels(method, route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        if self.settings.access_log:
            # The path as it was sent: its encoding keeps line ends and the like out of the log.
            path = (scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")).decode("latin-1")
            verb, path = ascii(scope["method"])[1:-1], path[:500]
            request = {"request_id": request_id, "method": verb, "path": path, "route": route, "status": status}
            extra = {"request": {**request, "seconds": round(seconds, 6)}}
            access_logger.info("%s %s %d %.1f ms %s", verb, path, status, seconds * 1e3, request_id, extra=extra)


async def read_body(scope: Scope, receive: Receive, settings: ServiceSettings) -> bytes | None:
    """Return the whole body, None when the caller leaves, or raise the error for one beyond a limit."""
    limit = settings.max_body_bytes
    too_large = ApiError(413, "body_too_large", f"a body may have at most {limit} bytes", _CLOSE)
    headers = Headers(scope=scope)
    announced = headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > limit):
        raise too_large
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(settings.body_timeout):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limit:
                    raise too_large
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(408, "body_timeout", "the body did not arrive in time", _CLOSE) from None
    if body and headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the body as application/json")
    whole = bytes(body)
    if len(whole) > _SMALL_BODY:
        await asyncio.to_thread(_check_json, whole, settings)
    else:
        _check_json(whole, settings)
    return whole


def _check_json(body: bytes, settings: ServiceSettings) -> None:
    """Refuse JSON that is out of proportion, in time that is linear in its length."""
    if has_more_values(body, settings.max_json_values):
        most = f"at most {settings.max_json_values} values and {_MOST_NAMES} names of fields"
        raise ApiError(413, "body_too_large", f"a body may hold {most}")
    if is_deeper(body, settings.max_json_depth):
        raise ApiError(400, "too_deep", f"JSON may be nested at most {settings.max_json_depth} levels deep")


def has_more_values(body: bytes, limit: int) -> bool:
    """Whether JSON holds more than `limit` values or 1000 names, without parsing it; a list in a list may count twice.

    Every value but the first comes after a comma or an opening bracket, so that these bound what a parser builds.
    """
    structure, strings = _STRING.subn(b"", body, count=limit + 1)
    too_many = strings > limit or structure.count(b":") > _MOST_NAMES
    return too_many or sum(map(structure.count, (b",", b"[", b"{"))) > limit


def is_deeper(body: bytes, limit: int) -> bool:
    """Whether JSON is nested more than `limit` levels deep, found without a loop over its bytes.

    Strings are removed, then all but the brackets. Taking every `[]` out removes the innermost level, so that after
    `limit` passes nothing may be left. A few brackets that do not match are left to the parser.
    """
    structure = _STRING.sub(b"", body).translate(_BRACKETS, _OTHERS)
    for _ in range(limit):
        if not structure:
            return False
        structure = structure.replace(b"[]", b"")
    return b"[]" in structure or structure.count(b"[") > limit


def escaped_path(scope: Scope) -> str:
    """Return the decoded path in which a slash or percent sign that belongs to a segment stays encoded.

    Servers decode the whole path before it is routed, after which `a%2Fb` and `a/b` are the same.
    """
    raw = scope.get("raw_path")
    if raw is None:
        return str(scope["path"])
    segments = map(unquote, raw.decode("latin-1").split("/"))
    return "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)


def unescaped(segment: str) -> str:
    """Return the id that a segment of an escaped path stands for."""
    return segment.replace("%2F", "/").replace("%25", "%")
