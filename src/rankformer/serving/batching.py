"""`MicroBatcher`: questions that wait at the same time are answered together, and nobody waits for company.

An idle batcher starts on a question at once. Those that arrive while it works wait; when it is done it takes as many of
them as fit, in the order they came, and answers each group of equal keys with one call. The heavier the load, the
larger the groups: scoring 32 users takes little longer than scoring one, since the item vectors are read once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rankformer.serving.workers import Closed, Full

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class _Question(Generic[Key, Answer]):
    key: Key
    subject: int
    future: "asyncio.Future[Answer]"


class MicroBatcher(Generic[Key, Answer]):
    """One thread that answers questions in groups; used from one event loop."""

    def __init__(
        self,
        answer: Callable[[Key, Sequence[int]], Sequence[Answer]],
        *,
        batch_size: int,
        queue_size: int,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Keep what is needed.

        Args:
            answer: called in the thread with a key and the subjects that share it; returns an answer for each.
            batch_size: most questions taken at once.
            queue_size: most questions waiting.
            on_batch: told how many questions were taken.
        """
        self._answer = answer
        self._batch_size = batch_size
        self._queue_size = queue_size
        self._on_batch = on_batch
        self._waiting: deque[_Question[Key, Answer]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self._busy = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, key: Key, subject: int) -> Answer:
        """Return the answer for one subject.

        Raises:
            Full: too many questions wait.
            Closed: `close` was called.
        """
        if self._closed:
            raise Closed
        if len(self._waiting) >= self._queue_size:
            raise Full
        loop = asyncio.get_running_loop()
        question: _Question[Key, Answer] = _Question(key, subject, loop.create_future())
        self._waiting.append(question)
        if not self._busy:
            self._busy = True
            # Not this instant but in the loop's next round: what was read from other sockets in this one comes along.
            loop.call_soon(self._start, loop)
        return await question.future

    def close(self) -> None:
        """Take no more questions; those that wait are told so."""
        self._closed = True
        while self._waiting:
            question = self._waiting.popleft()
            if not question.future.done():
                question.future.set_exception(Closed())
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand what waits to the thread, or rest."""
        taken: list[_Question[Key, Answer]] = []
        while self._waiting and len(taken) < self._batch_size:
            question = self._waiting.popleft()
            if not question.future.done():  # done: whoever asked has given up
                taken.append(question)
        self._busy = bool(taken)
        if taken:
            self._on_batch(len(taken))
            self._thread.submit(self._work, loop, taken)

    def _work(self, loop: asyncio.AbstractEventLoop, taken: list[_Question[Key, Answer]]) -> None:
        """Answer in the thread, group by group; a group that fails does not harm the others."""
        groups: dict[Key, list[_Question[Key, Answer]]] = {}
        for question in taken:
            groups.setdefault(question.key, []).append(question)
        outcomes: list[tuple[list[_Question[Key, Answer]], Any]] = []
        for key, questions in groups.items():
            try:
                outcomes.append((questions, self._answer(key, [question.subject for question in questions])))
            except Exception as error:
                outcomes.append((questions, error))
        with suppress(RuntimeError):  # the loop is gone: the process is being stopped without patience
            loop.call_soon_threadsafe(self._finish, loop, outcomes)

    def _finish(
        self, loop: asyncio.AbstractEventLoop, outcomes: list[tuple[list[_Question[Key, Answer]], Any]]
    ) -> None:
        """Give the answers out, after the thread has been given its next work."""
        if not self._closed:
            self._start(loop)
        for questions, outcome in outcomes:
            for place, question in enumerate(questions):
                if question.future.done():
                    continue
                if isinstance(outcome, Exception):
                    question.future.set_exception(outcome)
                else:
                    question.future.set_result(outcome[place])
