"""`Service`: the parts that requests share, and the way from a caller's ids to an answer in a thread."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rankformer.serving.batching import MicroBatcher
from rankformer.serving.metrics import Metrics
from rankformer.serving.model_slot import ModelSlot
from rankformer.serving.problems import Problem, invalid, turned_away, unknown
from rankformer.serving.served_model import Entry, ServedModel, Wish
from rankformer.serving.settings import ServiceSettings, Tokens
from rankformer.serving.workers import Closed, Full, Workers

T = TypeVar("T")
Group = tuple[ServedModel, Wish]


class Service:
    """One running service; belongs to one event loop."""

    def __init__(self, path: Path, settings: ServiceSettings, tokens: Tokens) -> None:
        self.settings = settings
        self.tokens = tokens
        self.metrics = Metrics()
        self.slot = ModelSlot(path, self.metrics)
        self.workers = Workers(settings.workers, settings.waiting, "worker")
        # Without batching single users have threads and a queue of the same size of their own.
        self._singles = Workers(settings.workers, settings.queue_size, "single")
        self._batcher = MicroBatcher[Group, list[Entry]](
            lambda group, users: group[0].lists(users, group[1]),
            batch_size=settings.batch_size,
            queue_size=settings.queue_size,
            on_batch=self.metrics.batched,
        )
        self.metrics.watch_queue(lambda: len(self._batcher))
        self.stopping = False

    def close(self) -> None:
        """Turn away whatever still comes."""
        self.stopping = True
        self._batcher.close()
        self._singles.close()
        self.workers.close()
        self.slot.close()

    @property
    def model(self) -> ServedModel:
        """The model that answers now; take it once per request."""
        model = self.slot.current
        if model is None:
            raise self.turned_away(503, "starting", "the model is still being loaded")
        return model

    def turned_away(self, status: int, code: str, message: str) -> Problem:
        """Return the counted answer to one who should come again."""
        self.metrics.rejected(code)
        return turned_away(status, code, message, self.settings.retry_after)

    async def list_of(self, model: ServedModel, user: int, wish: Wish) -> list[Entry]:
        """Return the ranked list of one user, together with others who wait where batching is on."""
        if self.settings.batching:
            return await self._admitted(self._batcher.ask((model, wish), user))
        return (await self._admitted(self._singles.run(model.lists, [user], wish)))[0]

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a heavy call returns, run in one of a few threads."""
        return await self._admitted(self.workers.run(function, *arguments))

    async def _admitted(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Full:
            raise self.turned_away(429, "too_many_requests", "too many requests wait already") from None
        except Closed:
            raise self.turned_away(503, "stopping", "the service is stopping") from None

    def known_user(self, found: int | None, asked: object) -> int:
        """Return the index that was found for a user, or refuse the one that was asked for."""
        return self._known("user", found, asked)

    def known_item(self, found: int | None, asked: object) -> int:
        """Return the index that was found for an item, or refuse the one that was asked for."""
        return self._known("item", found, asked)

    def _known(self, kind: str, found: int | None, asked: object) -> int:
        if found is None:
            self.metrics.unknown(kind)
            raise unknown(kind, asked)
        return found

    def check_k(self, k: int) -> None:
        """Refuse a list that is longer than allowed."""
        if k > self.settings.max_k:
            raise invalid(f"k: at most {self.settings.max_k} places may be asked for")

    def check_length(self, name: str, values: Sequence[Any] | None, limit: int) -> None:
        """Refuse a list of ids that is longer than allowed."""
        if values is not None and len(values) > limit:
            raise invalid(f"{name}: at most {limit} entries are allowed; found {len(values)}")

    def wish(
        self,
        find: Callable[[Any], int | None],
        k: int,
        include_seen: bool,
        allow: Sequence[Any] | None,
        block: Sequence[Any] | None,
    ) -> Wish:
        """Return what a caller asks for, checked and in item indices; `find` looks an item up."""
        self.check_k(k)
        return Wish(k, include_seen, self._filter("allow", find, allow), self._filter("block", find, block))

    def _filter(
        self, name: str, find: Callable[[Any], int | None], raw_ids: Sequence[Any] | None
    ) -> tuple[int, ...] | None:
        """Return the known items of a filter; as in the library, one in which nothing is known is refused."""
        if raw_ids is None:
            return None
        self.check_length(name, raw_ids, self.settings.max_filter)
        found = [find(raw_id) for raw_id in raw_ids]
        known = sorted({index for index in found if index is not None})
        self.metrics.unknown("item", sum(index is None for index in found))
        if raw_ids and not known:
            raise Problem(404, "unknown_item", f"the model knows no item of {name}")
        return tuple(known)
