"""The outermost layer: counts, times, logs and bounds every request, and turns whatever goes wrong into an answer."""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankformer.serving.gate import ADMIN
from rankformer.serving.limits import WITHOUT_BODY
from rankformer.serving.problems import from_exception
from rankformer.serving.service import Service

logger = logging.getLogger("rankformer.serving")
access_logger = logging.getLogger("rankformer.serving.access")

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_UNMATCHED = "unmatched"
_GONE = 499  # the caller left before there was an answer; never sent
_ALWAYS = frozenset(("/livez", "/readyz", "/metrics"))


class Observing:
    """Wraps the whole application; exceptions end here."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not any(name == _NOSNIFF[0] for name, _ in message["headers"]):
                    message["headers"] = [*message["headers"], _NOSNIFF]
            await send(message)

        self.in_flight += 1
        self.service.metrics.in_flight.set(self.in_flight)
        try:
            await self._bounded(scope, receive, watched_send)
        except Exception as error:
            problem = from_exception(error)
            if problem.status == 500:
                logger.exception("a request failed in a way nobody foresaw")
            if not status:
                await problem.response()(scope, receive, watched_send)
        finally:
            self.in_flight -= 1
            self.service.metrics.in_flight.set(self.in_flight)
            self._note(scope, status or _GONE, time.perf_counter() - started)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within the limits of number and time."""
        settings = self.service.settings
        if self.in_flight > settings.max_in_flight and scope["path"] not in _ALWAYS:
            raise self.service.turned_away(503, "overloaded", "too many requests at once")
        if scope["path"].startswith(ADMIN):  # loading takes as long as the model is large
            await self.app(scope, receive, send)
            return
        # The time that a body may take to arrive comes on top.
        limit = settings.request_timeout + (0 if scope["method"] in WITHOUT_BODY else settings.body_timeout)
        try:
            async with asyncio.timeout(limit) as timer:
                await self.app(scope, receive, send)
        except TimeoutError:
            if not timer.expired():
                raise
            raise self.service.turned_away(503, "timeout", "no answer was found in time") from None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route: str = getattr(scope.get("route"), "path_format", _UNMATCHED)
        self.service.metrics.answered(scope["method"], route, status, seconds)
        if self.service.settings.access_log:
            # The path as it was sent: its encoding keeps line ends and the like out of the log.
            path = (scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")).decode("latin-1")
            access_logger.info("%s %s %d %.1f ms", ascii(scope["method"])[1:-1], path[:500], status, seconds * 1e3)
