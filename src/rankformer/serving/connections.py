"""The connections of the service: how many there may be, and how long one may wait for its caller."""

import asyncio
import resource
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from rankformer.errors import ConfigError
from rankformer.serving.service import Service

_MOST_DESCRIPTORS = 65536  # that a process asks for
ACCEPTED_AT_ONCE = 32  # connections that are taken each time the event loop comes round
_OTHER_DESCRIPTORS = 64 + 4 * ACCEPTED_AT_ONCE  # for files, and for those taken while one too many is being closed


class Connections:
    """The limits that the connections of one server share.

    Attributes:
        most: connections that may be open.
        waiting: those without a request, the longest first; one of them makes room for a new one.
    """

    def __init__(self, service: Service) -> None:
        self.settings, self.rejections = service.settings, service.metrics.rejections.labels("connections")
        self.most = min(self.settings.max_connections, max(1, _descriptors() - _OTHER_DESCRIPTORS))
        self.waiting: dict[BoundedConnection, None] = {}


class BoundedConnection(H11Protocol):
    """One connection: a caller has a limited time to send a request, and to read the next part of an answer."""

    def __init__(self, shared: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._shared, self._settings = shared, shared.settings
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, in place of the one that has waited longest when there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._shared.most:
            self._shared.rejections.inc()
            next(iter(self._shared.waiting), self)._close()
        self._wait_for_request(self._settings.header_timeout)

    def data_received(self, data: bytes) -> None:
        """Read on; once a request is there, its own limits hold."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop("request")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.cycle.response_complete:  # nothing else was sent meanwhile
            self._wait_for_request(self._settings.keep_alive)

    def pause_writing(self) -> None:
        """Wait for the caller to read: nothing more is written until then."""
        super().pause_writing()
        self._timers["reading"] = self.loop.call_later(self._settings.write_timeout, self._close)

    def resume_writing(self) -> None:
        """Write on."""
        super().resume_writing()
        self._stop("reading")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop("request")
        self._stop("reading")

    def _wait_for_request(self, seconds: float) -> None:
        self._stop("request")
        if not self.transport.is_closing() or self.transport.get_write_buffer_size():
            self._shared.waiting[self] = None
            self._timers["request"] = self.loop.call_later(seconds, self._close)

    def _stop(self, timer: str) -> None:
        if timer == "request":
            self._shared.waiting.pop(self, None)
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _close(self) -> None:
        """Close at once: a caller who does not read would hold what is still to be sent."""
        self._stop("request")
        self.transport.abort()


def _descriptors() -> int:
    """Return how many files this process may open, after asking for as many as it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def listening(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to every address of a host; port 0 takes any that is free, the same for all.

    Raises:
        ConfigError: the address cannot be used.
    """
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address[0], port, *address[2:]))
            bound.listen()  # or another process could bind it too, until one of both listens
            port = bound.getsockname()[1]
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}; choose another --port") from None
    return sockets
