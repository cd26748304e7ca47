"""`Workers`: a few threads for heavy calls, and a bounded number of calls waiting for them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Full(Exception):
    """As many calls wait as may."""


class Closed(Exception):
    """The service is stopping and takes no more calls."""


class Workers:
    """Runs calls in threads, so that the event loop stays free; refuses beyond what may run and wait."""

    def __init__(self, threads: int, waiting: int, name: str) -> None:
        self._limit = threads + waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._taken = 0
        self._lock = Lock()  # calls end in their threads
        self._closed = False

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what the function returns in a thread.

        Raises:
            Full: too many calls are under way.
            Closed: `close` was called.
        """
        if self._closed:
            raise Closed
        with self._lock:
            if self._taken >= self._limit:
                raise Full
            self._taken += 1
        call = self._pool.submit(function, *arguments)
        # The place is free when the thread is, which may be long after the one who asked has given up.
        call.add_done_callback(self._release)
        return await asyncio.wrap_future(call)

    def _release(self, call: "Future[Any]") -> None:
        del call
        with self._lock:
            self._taken -= 1

    def close(self) -> None:
        """Take no more calls, and drop those that wait."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
