"""`BatchQueue`: threads behind a bounded queue, which answer together what can be answered together.

An idle thread starts on a request at once. Those that arrive while all threads work wait; a thread that is done takes
as many of them as fit, in the order they came, and answers each group of equal keys with one call. The heavier the
load, the larger the groups: scoring 32 users takes little longer than scoring one, since the item embeddings are read
once.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
_Waiting = tuple[Any, Any, "asyncio.Future[Any]"]  # key, subject, and where the answer goes


class BatchQueue(Generic[Key, Answer]):
    """A few threads that answer in groups; used from one event loop, which stays free."""

    def __init__(
        self,
        answer: Callable[[Key, Sequence[Any]], Iterable[Answer]],
        *,
        threads: int,
        batch_size: int,
        queue_size: int,
        rejected: Callable[[int, str, str], Exception],
        on_batch: Callable[[int], None] = lambda size: None,
        retry_alone: bool = False,
    ) -> None:
        """Create the queue and its threads.

        Args:
            answer: called in a thread with a key and the subjects that share it; returns an answer for each.
            threads: most batches answered beside each other.
            batch_size: most requests taken at once.
            queue_size: most requests waiting while every thread works.
            rejected: returns the error for a request that is not taken, from its status, code and message.
            on_batch: called with the size of each batch.
            retry_alone: whether a group that fails is asked one by one, so that one does not fail the others.
        """
        self._answer = answer
        self._threads = threads
        self._batch_size = batch_size
        self._queue_size = queue_size
        self._rejected = rejected
        self._on_batch = on_batch
        self._retry_alone = retry_alone
        self._queue: deque[_Waiting] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="answer")
        self._working = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether anything waits or is being answered."""
        return self._working > 0 or len(self._queue) > 0

    def start(self) -> None:
        """Start every thread now: one that could not be started later would leave its requests waiting."""
        all_started = threading.Barrier(self._threads)  # an idle thread would take the next of these calls too
        for _ in range(self._threads):
            self._pool.submit(all_started.wait)

    async def submit(self, key: Key, subject: Any = None) -> Answer:
        """Return the answer for one subject, or raise the error for a request too many or too late."""
        if self._closed:
            raise self._stopping()
        idle = self._threads - self._working
        if len(self._queue) >= self._queue_size + idle:  # an idle thread is about to take at least one
            raise self._rejected(429, "too_many_requests", "too many requests wait already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._queue.append((key, subject, future))
        if idle:
            # Not this instant but in the loop's next iteration, with what was read from other sockets in this one.
            loop.call_soon(self._start, loop)
        return await future

    def close(self) -> None:
        """Take no more requests, and reject those that wait."""
        self._closed = True
        while self._queue:
            *_, future = self._queue.popleft()
            if not future.done():
                future.set_exception(self._stopping())
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _stopping(self) -> Exception:
        return self._rejected(503, "stopping", "the service is stopping")

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand what waits to a thread, if there are both."""
        batch: list[_Waiting] = []
        while self._queue and self._working < self._threads and len(batch) < self._batch_size:
            waiting = self._queue.popleft()
            if not waiting[-1].done():  # done: the caller has given up
                batch.append(waiting)
        if batch:
            self._working += 1
            self._on_batch(len(batch))
            self._pool.submit(self._work, loop, batch)

    def _work(self, loop: asyncio.AbstractEventLoop, batch: list[_Waiting]) -> None:
        """Answer in the thread, group by group; a group that fails does not harm the others."""
        groups: dict[Any, list[tuple[Any, asyncio.Future[Any]]]] = {}
        for key, subject, future in batch:
            groups.setdefault(key, []).append((subject, future))
        outcomes = [outcome for key, group in groups.items() for outcome in self._outcomes(key, group)]
        with suppress(RuntimeError):  # the loop is closed: the process is being stopped at once
            loop.call_soon_threadsafe(self._finish, loop, outcomes)

    def _outcomes(
        self, key: Any, group: Sequence[tuple[Any, "asyncio.Future[Any]"]]
    ) -> list[tuple["asyncio.Future[Any]", Any]]:
        """Return the answer or error of each of a group."""
        subjects, futures = zip(*group, strict=True)
        try:
            return list(zip(futures, self._answer(key, subjects), strict=True))
        except Exception as error:
            if len(group) == 1 or not self._retry_alone:
                return [(future, error) for future in futures]
            return [outcome for single in group for outcome in self._outcomes(key, [single])]

    def _finish(self, loop: asyncio.AbstractEventLoop, outcomes: list[tuple["asyncio.Future[Any]", Any]]) -> None:
        """Give the answers out, after the thread has been given its next batch."""
        self._working -= 1
        self._start(loop)
        for future, outcome in outcomes:
            if not future.done():
                set_outcome = future.set_exception if isinstance(outcome, Exception) else future.set_result
                set_outcome(outcome)
