"""`ServedModel`: one loaded run with everything an answer needs; `ModelSlot`: its hot swap while requests continue."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rankformer.errors import RunFolderError
from rankformer.runs.manifest import MANIFEST, read_manifest
from rankformer.runs.saved import Run, load_run
from rankformer.scoring.recommender import RankingOptions
from rankformer.serving.ids import IdCodec
from rankformer.serving.metrics import Metrics
from rankformer.serving.search import SearchIndex

logger = logging.getLogger("rankformer.serving")

Entry = dict[str, Any]
_NOT_METRICS = ("event", "epoch", "best", "seconds")


class ServedModel:
    """A run, ready to answer; it never changes, so any number of threads may use it.

    Attributes:
        run: what the folder holds.
        recommender: what answers, in indices.
        version: first 12 hexadecimal digits of the manifest's SHA-256.
        created: when the run was saved, ISO 8601.
        loaded: when it was loaded, seconds of `time.time`.
        users: the user ids.
        items: the item ids.
        titles: a title or None per item index.
    """

    def __init__(self, run: Run, version: str, created: str) -> None:
        self.run = run
        self.recommender = recommender = run.recommender
        self.version = version
        self.created = created
        self.loaded = time.time()
        self.users = IdCodec(recommender.user_ids.ids)
        self.items = IdCodec(recommender.item_ids.ids)
        titles = recommender.titles
        self.titles: list[str | None] = [None] * len(self.items) if titles is None else titles.to_pylist()

    @property
    def age(self) -> float:
        """Seconds since the run was saved, as of now."""
        try:
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.created)).total_seconds())
        except (ValueError, TypeError):  # no date, or one without a time zone
            return time.time() - self.loaded

    def lists(self, users: Sequence[int], options: RankingOptions) -> list[list[Entry]]:
        """Return the ranked lists of user indices."""
        found = self.recommender.rank(users, options)
        pairs = zip(found.items.tolist(), found.scores.float().tolist(), strict=True)
        return [self._ranked(items, scores) for items, scores in pairs]

    def session(self, history: Sequence[int], options: RankingOptions) -> dict[str, Any]:
        """Return the ranked list of a new user with these item indices, and whether it fell back to popularity."""
        found, [is_empty] = self.recommender.rank_histories([history], options)
        return {
            "items": self._ranked(found.items[0].tolist(), found.scores[0].float().tolist()),
            "fallback": is_empty,
        }

    def similar(self, item: int, k: int) -> list[Entry]:
        """Return the items most similar to an item index."""
        found = self.recommender.rank_similar(item, k)
        return self._ranked(found.items[0].tolist(), found.scores[0].float().tolist())

    def explain(self, item: int, user: int | None, history: Sequence[int] | None) -> dict[str, Any]:
        """Return the score of an item and its parts, for a user index or for a new user's history."""
        found = self.recommender.explain_index(item, user=user, history=history)
        reasons = zip(found.items, found.contributions, strict=True)
        return {
            "user_id": None if user is None else self.users.values[user],
            **self.titled(item),
            "score": found.score,
            "reasons": [{**self.titled(reason), "contribution": value} for reason, value in reasons],
            "own": found.user_contribution,
            "crowd": found.global_contribution,
            "model_version": self.version,
        }

    def history(self, user: int) -> list[int]:
        """Return the distinct item indices of a user, in the order of the interaction log."""
        return list(dict.fromkeys(self.recommender.history_of(user).tolist()))

    def titled(self, item: int) -> Entry:
        """Return an item index as the id and title that callers get."""
        return {"item_id": self.items.values[item], "title": self.titles[item]}

    def _ranked(self, items: Sequence[int], scores: Sequence[float]) -> list[Entry]:
        """Return item indices with their scores as a list for callers; -1 marks an empty position."""
        values, titles = self.items.values, self.titles
        return [
            {"item_id": values[item], "title": titles[item], "score": score, "rank": rank}
            for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1)
            if item >= 0
        ]

    @cached_property
    def user_search(self) -> SearchIndex:
        """The users by id, in the order of the ids."""
        return SearchIndex([self.users.texts], self.recommender.seen.counts, popular_first=False)

    @cached_property
    def item_search(self) -> SearchIndex:
        """The items by id and title, most popular first."""
        titles = self.recommender.titles
        counts = np.bincount(self.recommender.seen.items, minlength=len(self.items))
        return SearchIndex([self.items.texts] + ([] if titles is None else [titles]), counts, popular_first=True)

    @cached_property
    def can(self) -> dict[str, bool]:
        """What this method is able to do."""
        recommender = self.recommender
        return {
            "fold_in": recommender.can_fold_in,
            "explain": recommender.can_explain,
            "similar": recommender.can_find_similar,
        }

    @cached_property
    def card(self) -> dict[str, Any]:
        """The model card; of a path on this machine only the last part is shown."""
        run = self.run
        metric, curve = validation_curve(run.log, run.settings.get("metric"))
        return {
            "model": run.model,
            "settings": run.settings,
            "seed": run.seed,
            "data": _without_folders(run.data),
            "metrics": run.metrics,
            "protocol": run.protocol,
            "versions": run.versions,
            "created": self.created,
            "users": len(self.users),
            "items": len(self.items),
            "pairs": len(self.recommender.history),
            "curve": curve,
            "curve_metric": metric,
            "can": self.can,
            "model_version": self.version,
        }

    def warm_up(self) -> "ServedModel":
        """Return the model after one call of each kind, so that no request is the first."""
        if len(self.users) and len(self.items):
            self.lists([0], RankingOptions(k=1))
            self.history(0)
            if self.can["similar"]:
                self.similar(0, 1)
            if self.can["fold_in"]:
                self.session([0], RankingOptions(k=1))
            if self.can["explain"]:
                self.explain(0, 0, None)
        self.user_search.find("", 1)
        self.item_search.find("", 1)
        return self


def validation_curve(log: list[dict[str, Any]], wanted: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the metric that chose the best epoch, and its value at each validation of a training log."""
    validations = [event for event in log if event.get("event") == "validation"]
    names = [name for name in (validations[0] if validations else ()) if name not in _NOT_METRICS]
    metric = wanted if wanted in names else next(iter(names), None)
    points = [
        {"epoch": event.get("epoch"), "value": event.get(metric or ""), "seconds": event.get("seconds")}
        for event in validations
    ]
    return metric, points


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(entry) for key, entry in value.items()}
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def load_served_model(path: Path) -> ServedModel:
    """Return the run at a path, every byte of it checked and every kind of answer tried.

    Raises:
        RunFolderError: it is not a whole run, or it was replaced while being read.
    """
    folder = path.resolve()  # a symbolic link may be pointed elsewhere at any time: follow it once
    version = _version_of(folder)
    created = str(read_manifest(folder).get("created", ""))
    run = load_run(folder)
    if _version_of(folder) != version:
        raise RunFolderError(f"{folder} was replaced while it was being loaded; load it again once it is whole")
    return ServedModel(run, version, created).warm_up()


def _version_of(folder: Path) -> str:
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise RunFolderError(f"{folder / MANIFEST} cannot be read: {error.strerror}") from error


class ModelSlot:
    """Holds the model that answers, read from a path that is fixed by configuration.

    A reload reads the new run in a thread of its own; then one reference changes. A request keeps the model it began
    with; the old model is freed after its last request. A run that cannot be loaded changes nothing.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path = path
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._lock = asyncio.Lock()
        self._requested = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.current: ServedModel | None = None
        self.failure: Exception | None = None

    @property
    def loading(self) -> bool:
        """Whether a run is being loaded at this moment."""
        return self._lock.locked()

    async def load(self) -> ServedModel:
        """Return the model that the path holds now, once it answers in place of the previous one.

        Raises:
            Exception: it cannot be used; the previous model continues.
        """
        async with self._lock:
            previous = self.current
            try:
                model = await asyncio.get_running_loop().run_in_executor(self._thread, load_served_model, self._path)
            except Exception as error:
                self.failure = error
                self._metrics.reloads.labels("failed").inc()
                state = "no model is loaded" if previous is None else f"model {previous.version} continues"
                logger.error("loading failed, %s: %s", state, error)
                raise
            self.current, self.failure = model, None
            self._metrics.set_model(model.version, model.run.model, model.created, model.loaded, lambda: model.age)
            logger.info("model %s is ready%s", model.version, f", replacing {previous.version}" if previous else "")
            return model

    def load_soon(self) -> None:
        """Load in the background; many calls during one load (signals) make one more, not many."""
        if self._requested:
            return
        self._requested = True
        task = asyncio.get_running_loop().create_task(self._load_in_background())
        self._tasks.add(task)  # the loop itself would let a running task be collected
        task.add_done_callback(self._tasks.discard)

    async def _load_in_background(self) -> None:
        async with self._lock:
            self._requested = False  # the path is read after this, so a later signal needs another load
        with suppress(Exception):  # logged and counted by then
            await self.load()

    async def close(self) -> None:
        """Load nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
