"""An HTTP client that costs little: keep-alive connections, requests as ready bytes, answers barely parsed."""

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Result = dict[str, Any]


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of answers with status 200
    broken: int = 0  # connections that ended before an answer
    unsent: int = 0  # requests that were due while no connection was free
    versions: Counter[bytes] = field(default_factory=Counter)

    def add(self, status: int, seconds: float, body: bytes) -> None:
        self.statuses[status] += 1
        if status == 200:
            self.seconds.append(seconds)
            # Every answer ends in "model_version":"0123456789ab"}
            self.versions[body[-14:-2]] += 1

    def summary(self, elapsed: float) -> Result:
        ordered = sorted(self.seconds)
        place = (
            {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in SHARES}
            if ordered
            else {}
        )
        return {
            "elapsed": elapsed,
            "answered": sum(self.statuses.values()),
            "per_second": len(ordered) / elapsed,
            **place,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "broken": self.broken,
            "unsent": self.unsent,
            "versions": len(self.versions),
        }


SHARES = (("p50", 0.5), ("p99", 0.99))


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, tally: Tally, on_free: Callable[["Connection"], None]) -> None:
        self.tally = tally
        self.on_free = on_free
        self.buffer = b""
        self.started: float | None = None
        self.open = False
        self.reconnecting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.open = True

    def send(self, request: bytes) -> None:
        self.started = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        place = head.find(b"content-length:")
        size = int(head[place + 15 :].split(b"\r\n", 1)[0])
        if len(self.buffer) < end + 4 + size:
            return
        body, self.buffer = self.buffer[end + 4 : end + 4 + size], b""
        assert self.started is not None
        self.tally.add(int(head[9:12]), time.perf_counter() - self.started, body)
        self.started = None
        if b"connection: close" in head:
            self.transport.close()
            self.reconnecting = asyncio.ensure_future(self.reconnect())
        else:
            self.on_free(self)

    @property
    def busy(self) -> bool:
        """Whether an answer, or a new connection, is still to come."""
        connecting = self.reconnecting is not None and not self.reconnecting.done()
        return connecting or (self.started is not None and self.open)

    async def reconnect(self) -> None:
        """Connect again, where the service has asked for it."""
        port = self.transport.get_extra_info("peername")[1]
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)
        self.on_free(self)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.open = False
        if self.started is not None:
            self.tally.broken += 1


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def connect(port: int, count: int, tally: Tally, on_free: Callable[[Connection], None]) -> list[Connection]:
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        _, connection = await loop.create_connection(lambda: Connection(tally, on_free), "127.0.0.1", port)
        made.append(connection)
    return made


async def close(opened: Sequence[Connection]) -> None:
    """Close connections, and wait until their sockets are: the loop does that in its next turns."""
    for connection in opened:
        connection.transport.close()
    while any(connection.transport.get_extra_info("socket").fileno() >= 0 for connection in opened):
        await asyncio.sleep(0.001)


async def closed_loop(port: int, requests: Sequence[bytes], connections: int, until: Callable[[], bool]) -> Result:
    """Return what happens when each connection asks again as soon as it has an answer."""
    tally = Tally()
    chooser = random.Random(0)

    def again(connection: Connection) -> None:
        if not until():
            connection.send(chooser.choice(requests))

    opened = await connect(port, connections, tally, again)
    started = time.perf_counter()
    for connection in opened:
        again(connection)
    while any(connection.busy for connection in opened):
        await asyncio.sleep(0.02)
    elapsed = time.perf_counter() - started
    await close(opened)
    return tally.summary(elapsed)


async def open_loop(port: int, requests: Sequence[bytes], connections: int, rate: float, seconds: float) -> Result:
    """Return what happens when requests fall due at a fixed rate, whatever has become of those before."""
    tally = Tally()
    chooser = random.Random(0)
    free: deque[Connection] = deque()
    opened = await connect(port, connections, tally, free.append)
    free.extend(opened)
    started = time.perf_counter()
    due = 0
    while (now := time.perf_counter() - started) < seconds:
        while due < now * rate:
            due += 1
            if free:
                free.popleft().send(chooser.choice(requests))
            else:
                tally.unsent += 1
        await asyncio.sleep(0.001)
    sending = time.perf_counter() - started
    while any(connection.busy for connection in opened):
        await asyncio.sleep(0.02)
    await close(opened)
    return {**tally.summary(sending), "due": due}


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Return a function that is true once so many seconds have passed."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end
