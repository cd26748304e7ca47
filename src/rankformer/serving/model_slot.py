"""`ModelSlot`: the model that answers, and its exchange for another while requests go on.

The new run is loaded and tried in a thread of its own beside the old one; then one reference changes. A request keeps
the model it began with until it is answered; the old model goes when its last request does. A run that cannot be
loaded changes nothing.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from rankformer.serving.metrics import Metrics
from rankformer.serving.served_model import ServedModel, load_served_model

logger = logging.getLogger("rankformer.serving")


class ModelSlot:
    """Holds at most one model, read from a path that is fixed by configuration."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._lock = asyncio.Lock()
        self._asked_for = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.current: ServedModel | None = None
        self.failure: Exception | None = None

    @property
    def loading(self) -> bool:
        """Whether a run is being loaded at this moment."""
        return self._lock.locked()

    async def load(self) -> ServedModel:
        """Return the model that the path holds now, once it answers in place of the one before.

        Raises:
            Exception: it cannot be used; the one before goes on.
        """
        async with self._lock:
            try:
                model = await asyncio.get_running_loop().run_in_executor(self._thread, load_served_model, self._path)
            except Exception as error:
                self.failure = error
                self._metrics.load_failed()
                logger.error("loading failed, %s: %s", self._what_goes_on(), error)
                raise
            before, self.current, self.failure = self.current, model, None
            self._metrics.loaded(model)
            if before is None:
                logger.info("model %s is ready", model.version)
            else:
                logger.info("model %s took over from %s", model.version, before.version)
            return model

    def load_soon(self) -> None:
        """Load in the background, as a signal asks for; many signals during one load make one more, not many."""
        if self._asked_for:
            return
        self._asked_for = True
        task = asyncio.get_running_loop().create_task(self._load_quietly())
        self._tasks.add(task)  # the loop itself would let a running task be collected
        task.add_done_callback(self._tasks.discard)

    async def _load_quietly(self) -> None:
        async with self._lock:
            self._asked_for = False  # the path is read after this, so a later signal has to be heeded anew
        with suppress(Exception):  # logged and counted by then
            await self.load()

    def close(self) -> None:
        """Load nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _what_goes_on(self) -> str:
        return "nothing can be answered" if self.current is None else f"model {self.current.version} goes on"
