"""`Service`: the state that requests share, and the bounded way from a request to a thread that answers it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from rankformer.data.journal import Event, JournalFullError, JournalWriter
from rankformer.errors import ConfigError
from rankformer.scoring.filters import parse_rule
from rankformer.scoring.options import RankingOptions
from rankformer.serving.batching import BatchQueue
from rankformer.serving.errors import ApiError, invalid, unknown
from rankformer.serving.model import Entry, ServedModel, load_served_model
from rankformer.serving.schemas import RankingBody, SimilarQuery
from rankformer.serving.settings import ServiceSettings

logger = logging.getLogger("rankformer.serving")

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MANY = 1000
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

T = TypeVar("T")
Find = Callable[[Any], int | None]


class Metrics:
    """Prometheus metrics of one service; label values are routes and fixed words, never what callers send.

    Attributes:
        text: returns them in Prometheus' format: of this process, or of all where several answer.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.text: Callable[[], bytes] = lambda: generate_latest(self.registry)
        add = self._add
        self.requests = add(Counter, "requests", "Requests answered.", "method", "route", "status")
        self.seconds = add(Histogram, "request_seconds", "Time to the answer.", "route", buckets=_LATENCIES)
        self.in_flight = add(Gauge, "requests_in_flight", "Requests being answered.")
        self.unknown_ids = add(Counter, "unknown_ids", "Requested ids that the model does not know.", "kind")
        self.rejections = add(Counter, "rejections", "Requests rejected, to be retried later.", "reason")
        self.reloads = add(Counter, "reloads", "Attempts to load a model.", "outcome")
        self.restarts = add(Counter, "process_restarts", "Processes that ended unexpectedly and were started again.")
        self.events = add(Counter, "events", "Events acknowledged.")
        self.batch_users = add(Histogram, "batch_users", "Users answered together.", buckets=_BATCHES)
        self.queue_length = add(Gauge, "queue_length", "Single users waiting to be answered.")
        self.model = add(Info, "model", "The model that answers.")
        self.model_age = add(Gauge, "model_age_seconds", "Time since the model was saved.")
        self.model_loaded = add(Gauge, "model_loaded_timestamp_seconds", "When the model was loaded.")
        ProcessCollector(registry=self.registry)
        for outcome in ("ok", "failed"):
            self.reloads.labels(outcome)
        for kind in ("user", "item"):
            self.unknown_ids.labels(kind)

    def _add(self, kind: Callable[..., T], name: str, meaning: str, *labels: str, **options: Any) -> T:
        return kind(f"rankformer_{name}", meaning, labels, registry=self.registry, **options)


class Service:
    """One running service; belongs to one event loop.

    Its model is read from a path that is fixed by configuration. A reload reads the new run in a thread of its own;
    then one reference changes. A request keeps the model it began with; the old model is freed after its last request.
    A run that cannot be loaded changes nothing.

    Attributes:
        current: the model that answers, None before the first is loaded.
        failure: why the last load failed, None when it did not.
        users: answers single users, by (model, options); together with others who wait where batching is on.
        compared: the model that it is compared with, where there is one.
        loads: answers requests to load, by the version of the model that answers from then on.
        request_load: loads, and returns that version; the main process does where several answer.
        retiring: whether another process answers from now on: connections end with their next answer.
    """

    def __init__(self, path: Path, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.stopping = self.retiring = False
        self.current: ServedModel | None = None
        self.compared: ServedModel | None = None
        self.failure: Exception | None = None
        self._path = path
        self._background: set[asyncio.Future[Any]] = set()
        # Reloads that are asked for during one (signals) wait together and make one more, not many.
        self.request_load: Callable[[], str] = self.load
        self.loads = BatchQueue[None, str](
            lambda _, requests: [self.request_load()] * len(requests),
            threads=1,
            batch_size=_MANY,
            queue_size=_MANY,
            rejected=self.rejected,
        )
        self.users = BatchQueue[tuple[ServedModel, RankingOptions], list[Entry]](
            lambda key, asked: key[0].current_lists(asked, key[1]),
            threads=1 if settings.batching else settings.workers,
            batch_size=settings.batch_size if settings.batching else 1,
            queue_size=settings.queue_size,
            rejected=self.rejected,
            on_batch=self.metrics.batch_users.observe,
            retry_alone=True,
        )
        self.journal = None if settings.journal is None else JournalWriter(settings.journal, settings.max_journal_bytes)
        # What arrives while bytes go to disk waits together, and takes one fsync.
        self.events = BatchQueue[None, int](
            self._append, threads=1, batch_size=_MANY, queue_size=settings.queue_size, rejected=self.rejected
        )
        self._calls = BatchQueue[Callable[[], Any], Any](
            lambda call, _: [call()],
            threads=settings.workers,
            batch_size=1,
            queue_size=settings.waiting,
            rejected=self.rejected,
        )
        self._queues: tuple[BatchQueue[Any, Any], ...] = (self.users, self._calls, self.loads, self.events)
        self.metrics.queue_length.set_function(lambda: len(self.users))

    def start(self) -> None:
        """Start the threads that answer."""
        for queue in self._queues:
            queue.start()

    async def close(self) -> None:
        """Reject whatever still comes, and load nothing any more."""
        self.stopping = True
        for queue in self._queues:
            queue.close()
        for load in self._background:
            load.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    @property
    def model(self) -> ServedModel:
        """The model that answers now; take it once per request."""
        return self._loaded(self.current)

    @property
    def compared_model(self) -> ServedModel:
        """The model that it is compared with; loaded with the other."""
        return self._loaded(self.compared)

    def _loaded(self, model: ServedModel | None) -> ServedModel:
        if model is None:
            raise self.rejected(503, "starting", "the model is still being loaded")
        return model

    def load_soon(self) -> None:
        """Load in the background what the path holds now."""
        load = asyncio.gather(
            self.loads.submit(None), return_exceptions=True
        )  # a failure is logged and counted by then
        self._background.add(load)  # the loop itself would let a running task be collected
        load.add_done_callback(self._background.discard)

    def load(self) -> str:
        """Let the model that the path holds now answer, and return its version; a failure leaves the previous one."""
        previous, other = self.current, self.settings.compare
        try:
            model = load_served_model(self._path, self.settings)
            compared = None if other is None else load_served_model(other, self.settings)
        except Exception as error:
            self.failure = error
            self.metrics.reloads.labels("failed").inc()
            state = "no model is loaded" if previous is None else f"model {previous.version} continues"
            logger.error("loading failed, %s: %s", state, error)
            raise
        self.current, self.compared, self.failure = model, compared, None
        self.metrics.reloads.labels("ok").inc()
        self.metrics.model.info({"version": model.version, "method": model.run.model, "created": model.created})
        self.metrics.model_age.set_function(lambda: model.age)
        self.metrics.model_loaded.set(model.loaded)
        logger.info("model %s is ready%s", model.version, f", replacing {previous.version}" if previous else "")
        return model.version

    def _append(self, _: None, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Append the events of several requests to the journal; they are on disk when this returns."""
        assert self.journal is not None  # or the model would have no recent events, and none are taken
        try:
            self.journal.append([event for events in batches for event in events])
        except JournalFullError as error:
            logger.error("%s", error)
            raise ApiError(507, "journal_full", "the journal is full; nothing of this request was taken") from None
        except OSError as error:
            logger.error("the journal cannot be written: %s", error)
            raise self.rejected(503, "journal_failed", "the journal cannot be written; send the events again") from None
        self.metrics.events.inc(sum(map(len, batches)))
        return [len(events) for events in batches]

    def rejected(self, status: int, code: str, message: str) -> ApiError:
        """Return the counted error for a request that may be repeated a little later."""
        self.metrics.rejections.labels(code).inc()
        return ApiError(status, code, message, {"Retry-After": str(self.settings.retry_after)})

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a heavy call returns, run in one of a few threads."""
        answer: T = await self._calls.submit(partial(function, *arguments))
        return answer

    def known(self, kind: str, find: Find, raw_id: Any) -> int:
        """Return the index of a user or item (`kind`), or raise the error for one that is not known."""
        indices, missing = self.split(kind, find, [raw_id])
        if missing:
            raise unknown(kind, raw_id)
        return indices[0]

    def split(self, kind: str, find: Find, raw_ids: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """Return the indices of the ids that are known, duplicates kept, and the ids of the others."""
        found = [(raw_id, find(raw_id)) for raw_id in raw_ids]
        missing = [raw_id for raw_id, index in found if index is None]
        self.metrics.unknown_ids.labels(kind).inc(len(missing))
        return [index for _, index in found if index is not None], missing

    def options(self, find: Find, request: SimilarQuery | RankingBody) -> RankingOptions:
        """Return a request's options in item indices; as in the library, a filter in which nothing is known is refused.

        A query cannot hold an empty list, so that one without a filter has an empty one: only what was sent counts.
        """
        given = {name: getattr(request, name) for name in ("allow", "block") if name in request.model_fields_set}
        filters: dict[str, Any] = {}
        for name, raw_ids in given.items():
            if raw_ids is not None:
                indices, _ = self.split("item", find, raw_ids)
                if raw_ids and not indices:
                    raise ApiError(404, "unknown_item", f"the model knows no item of {name}")
                filters[name] = tuple(sorted(set(indices)))
        filters["where"] = tuple(text for text in (self.settings.where, request.where) if text is not None)
        rules: list[tuple[str, Callable[[str], Any]]] = [("at_most", int), ("boost", float)]
        for rule, number in rules:
            filters[rule] = tuple(parse_rule(rule, text, number) for text in getattr(request, rule))
        seen, cold = getattr(request, "include_seen", False), getattr(request, "include_cold", False)
        try:
            return RankingOptions(request.k, seen, include_cold=cold, **filters)
        except ConfigError as error:
            raise invalid(str(error)) from None
