"""`Service`: the state that requests share, and the bounded way from a request to a thread that answers it."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rankformer.scoring.recommender import RankingOptions
from rankformer.serving.batching import ClosedError, MicroBatcher, QueueFullError, WorkerPool
from rankformer.serving.errors import ApiError, unknown
from rankformer.serving.metrics import Metrics
from rankformer.serving.model import Entry, ModelSlot, ServedModel
from rankformer.serving.settings import ServiceSettings

T = TypeVar("T")
Find = Callable[[Any], int | None]


class Service:
    """One running service; belongs to one event loop."""

    def __init__(self, path: Path, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.slot = ModelSlot(path, self.metrics)
        self._workers = WorkerPool(settings.workers, settings.waiting)
        # Without batching single users have threads and a queue of the same size of their own.
        self._singles = WorkerPool(settings.workers, settings.queue_size)
        self._batcher = MicroBatcher[tuple[ServedModel, RankingOptions], list[Entry]](
            lambda key, users: key[0].lists(users, key[1]),
            batch_size=settings.batch_size,
            queue_size=settings.queue_size,
            on_batch=self.metrics.batch_users.observe,
        )
        self.metrics.queue_length.set_function(lambda: len(self._batcher))
        self.stopping = False

    async def close(self) -> None:
        """Reject whatever still comes."""
        self.stopping = True
        for queue in (self._batcher, self._singles, self._workers):
            queue.close()
        await self.slot.close()

    @property
    def model(self) -> ServedModel:
        """The model that answers now; take it once per request."""
        model = self.slot.current
        if model is None:
            raise self.rejected(503, "starting", "the model is still being loaded")
        return model

    def rejected(self, status: int, code: str, message: str) -> ApiError:
        """Return the counted error for a request that may be repeated a little later."""
        self.metrics.rejections.labels(code).inc()
        return ApiError(status, code, message, {"Retry-After": str(self.settings.retry_after)})

    async def list_of(self, model: ServedModel, user: int, options: RankingOptions) -> list[Entry]:
        """Return the ranked list of one user, computed together with others who wait where batching is on."""
        if self.settings.batching:
            return await self._admitted(self._batcher.submit((model, options), user))
        return (await self._admitted(self._singles.run(model.lists, [user], options)))[0]

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a heavy call returns, run in one of a few threads."""
        return await self._admitted(self._workers.run(function, *arguments))

    async def _admitted(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except QueueFullError:
            raise self.rejected(429, "too_many_requests", "too many requests wait already") from None
        except ClosedError:
            raise self.rejected(503, "stopping", "the service is stopping") from None

    def known(self, kind: str, find: Find, raw_id: Any) -> int:
        """Return the index of a user or item (`kind`), or raise the error for one that is not known."""
        index = find(raw_id)
        if index is None:
            self.metrics.unknown_ids.labels(kind).inc()
            raise unknown(kind, raw_id)
        return index

    def split(self, kind: str, find: Find, raw_ids: Sequence[Any]) -> tuple[list[int], list[Any]]:
        """Return the indices of the ids that are known, duplicates kept, and the ids of the others."""
        found = [(raw_id, find(raw_id)) for raw_id in raw_ids]
        missing = [raw_id for raw_id, index in found if index is None]
        self.metrics.unknown_ids.labels(kind).inc(len(missing))
        return [index for _, index in found if index is not None], missing

    def options(
        self, find: Find, k: int, include_seen: bool, allow: Sequence[Any] | None, block: Sequence[Any] | None
    ) -> RankingOptions:
        """Return a request's options in item indices; `find` looks an item up."""
        return RankingOptions(k, include_seen, self._filter("allow", find, allow), self._filter("block", find, block))

    def _filter(self, name: str, find: Find, raw_ids: Sequence[Any] | None) -> tuple[int, ...] | None:
        """Return the known items of a filter; as in the library, one in which nothing is known is refused."""
        if raw_ids is None:
            return None
        indices, _ = self.split("item", find, raw_ids)
        if raw_ids and not indices:
            raise ApiError(404, "unknown_item", f"the model knows no item of {name}")
        return tuple(sorted(set(indices)))
