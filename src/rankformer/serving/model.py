"""`ServedModel`: one loaded run with everything an answer needs."""

import hashlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rankformer.data.items import Items, read_item_ids
from rankformer.data.journal import JournalReader
from rankformer.errors import RunFolderError
from rankformer.runs.manifest import MANIFEST, located, read_manifest
from rankformer.runs.saved import Run, load_run
from rankformer.runs.training_log import blend_report
from rankformer.scoring.histories import Histories
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.top_k import TopK
from rankformer.serving.ids import IdIndex
from rankformer.serving.recent import Added, RecentEvents
from rankformer.serving.settings import ServiceSettings

Entry = dict[str, Any]
_NOT_METRICS = ("event", "epoch", "best", "seconds")
_DESCRIBED = 1024  # entries of lists that are written at once


class ServedModel:
    """A run, ready to answer; it never changes, so any number of threads may use it.

    Attributes:
        run: what the folder holds.
        recommender: what answers, in indices.
        version: first 12 hexadecimal digits of the manifest's SHA-256.
        created: when the run was saved, ISO 8601.
        loaded: when it was loaded, seconds of `time.time`.
        users: the user ids, searched in the order of the ids.
        items: the item ids and titles, searched with the most popular first.
        recent: what the journal holds beyond the run, None without a journal.
    """

    def __init__(self, run: Run, version: str, created: str) -> None:
        self.run = run
        self.recommender = recommender = run.recommender
        self.version = version
        self.created = created
        self.loaded = time.time()
        seen, items = recommender.seen, recommender.catalogue.ids
        self.users = IdIndex(recommender.user_ids.ids, seen.counts)
        popularity = np.bincount(seen.items, minlength=len(items))
        self.items = IdIndex(items, popularity, recommender.titles, popular_first=True)
        self.recent: RecentEvents | None = None

    @property
    def age(self) -> float:
        """Seconds since the run was saved, as of now."""
        try:
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.created)).total_seconds())
        except (ValueError, TypeError):  # no date, or one without a time zone
            return time.time() - self.loaded

    def lists(self, users: Sequence[int], options: RankingOptions) -> Iterator[list[Entry]]:
        """Return the ranked lists of user indices, -1 for an unknown user."""
        return self._ranked(self.recommender.rank(users, options))

    def added(self, user: Any) -> Added:
        """Return what a user has by the journal since the run; `user` is an index, or the id of an unknown one."""
        if self.recent is None or user is None:
            return {}
        return self.recent.of(self.users.values[user] if isinstance(user, int) and user >= 0 else user)

    def added_warm(self, user: int) -> list[int]:
        """Return the same as far as the method has learned the items."""
        return [item for item in self.added(user) if item < len(self.recommender.item_ids)]

    def current_lists(self, asked: Sequence[tuple[int, Added]], options: RankingOptions) -> Iterator[list[Entry]]:
        """Return the ranked lists of user indices, each with what the journal adds to the user."""
        plain = [user for user, added in asked if not added]
        rows = self.lists(plain, options) if plain else iter(())
        users, extras = [user for user, added in asked if added], [added for _, added in asked if added]
        if users:
            found, _ = self.recommender.rank_histories(histories_of(extras), options, users, strict=False)
            extended = self._ranked(found)
        return (next(extended) if added else next(rows) for _, added in asked)

    def fallback(self, user: int, added: Collection[int] = ()) -> str | None:
        """Return what answers for a user the model knows nothing about, -1 for an unknown one; None for all others."""
        known = len(self.recommender.item_ids)
        if self.can["fold_in"] and any(item < known for item in added):
            return None
        return "popularity" if user < 0 or self.recommender.cold[user] else None

    def session(
        self, history: Sequence[int], options: RankingOptions, user: int = -1, added: Added | None = None
    ) -> dict[str, Any]:
        """Return the ranked list of a user with these item indices, and whether it fell back to popularity.

        They follow what is known of a user index (-1 for a new user) and what the journal has added.
        """
        entries = [*(added or {}), *history]
        weights = [*(added or {}).values(), *[1.0] * len(history)]
        whole = Histories.of(np.zeros(len(entries)), np.array(entries, np.int64), 1, np.array(weights, np.float32))
        whole = whole if added else whole._replace(weights=None)
        found, [is_empty] = self.recommender.rank_histories(whole, options, [user])
        left_out = self.recommender.scorer.left_out_of_fold_in
        return {
            "items": next(self._ranked(found)),
            "fallback": "popularity" if is_empty else None,
            **({"left_out": left_out} if left_out else {}),
        }

    def similar(self, item: int, options: RankingOptions) -> list[Entry]:
        """Return the items most similar to an item index."""
        return next(self._ranked(self.recommender.rank_similar(item, options)))

    def find_warm(self, value: Any) -> int | None:
        """Return the index of an id that a history may hold, None for one that the method has not learned."""
        index = self.items.find(value)
        return index if index is not None and index < len(self.recommender.item_ids) else None

    def explain(self, item: int, user: int | None, history: Sequence[int] | None) -> dict[str, Any]:
        """Return the score of an item and its parts, for a user index or for a new user's history."""
        found = self.recommender.explain_index(item, user=user, history=history)
        return {
            "user_id": None if user is None else self.users.values[user],
            **self.titled(item),
            "score": found.score,
            "reasons": [{**self._named(each.item_id), "contribution": each.contribution} for each in found.reasons],
            "own": found.user_contribution,
            "crowd": found.global_contribution,
            **({} if found.members is None else {"members": found.members}),
        }

    def history(self, user: int) -> list[int]:
        """Return the distinct item indices of a user, in the order of the interaction log and then of the journal."""
        return list(dict.fromkeys([*self.recommender.history_of(user).tolist(), *self.added(user)]))

    def titled(self, item: int) -> Entry:
        """Return an item index as the id, title and attributes that callers get."""
        return self.described([item])[0]

    def described(self, items: Sequence[int]) -> list[Entry]:
        """Return item indices as the ids, titles and attributes that callers get."""
        known = self.recommender.items
        if known is None or not known.columns:
            return [self._named(item) for item in items]
        rows = known.attributes.take(pa.array(items, pa.int64())).to_pylist()
        return [{**self._named(item), "attributes": row} for item, row in zip(items, rows, strict=True)]

    def _named(self, item: int) -> Entry:
        return {"item_id": self.items.values[item], "title": self.items.titles[item]}

    def _ranked(self, found: TopK) -> Iterator[list[Entry]]:
        """Yield item indices with their scores as lists for callers; -1 marks an empty position.

        A few at a time: the entries of a whole batch take several times the memory of its answer.
        """
        cold, at_once = self.recommender.is_cold, max(1, _DESCRIBED // max(1, found.items.shape[1]))
        for start in range(0, len(found.items), at_once):
            rows, scores = (part[start : start + at_once].tolist() for part in (found.items, found.scores.float()))
            entries = iter(self.described([item for row in rows for item in row if item >= 0]))
            for row, values in zip(rows, scores, strict=True):
                yield [
                    {**next(entries), "score": score, "rank": rank, **({"cold": True} if cold[item] else {})}
                    for rank, (item, score) in enumerate(zip(row, values, strict=True), start=1)
                    if item >= 0
                ]

    @cached_property
    def can(self) -> dict[str, bool]:
        """What this method is able to do."""
        able = self.recommender
        return {"fold_in": able.can_fold_in, "explain": able.can_explain, "similar": able.can_find_similar}

    @cached_property
    def model_card(self) -> dict[str, Any]:
        """The model card; of a path on this machine only the last part is shown."""
        run = self.run
        metric, curve = validation_curve(run.log, run.settings.get("metric"))
        report = blend_report(run.log)
        return {
            "model": run.model,
            "settings": run.settings,
            "seed": run.seed,
            "data": _without_folders(run.data),
            "metrics": run.metrics,
            "warm_metrics": run.warm_metrics,
            "protocol": run.protocol,
            "refit": run.refit,
            **({} if run.update is None else {"update": run.update}),
            "versions": run.versions,
            "created": self.created,
            "users": len(self.users),
            "items": len(self.recommender.item_ids),
            "pairs": len(self.recommender.history),
            "curve": curve,
            "curve_metric": metric,
            "can": self.can,
            **({} if report is None else {"blend": report}),
            **({"attributes": self.attribute_types} if self.recommender.items is not None else {}),
            **(
                {"cold_items": len(self.recommender.cold_items.items)}
                if self.recommender.cold_items is not None
                else {}
            ),
        }

    @property
    def attribute_types(self) -> dict[str, str]:
        """What expressions may name, each with its Arrow type."""
        return {name: str(column.type) for name, column in self.recommender.filter_columns.items()}

    def warm_up(self, *where: str) -> "ServedModel":
        """Return the model after one call of each kind, so that no request is the first; all lists meet `where`."""
        if len(self.users) and len(self.items):
            self.lists([0], RankingOptions(k=1, where=where, include_cold=True))
            self.history(0)
            if self.can["similar"]:
                self.similar(0, RankingOptions(k=1))
            if self.can["fold_in"]:
                self.session([0], RankingOptions(k=1))
            if self.can["explain"] and not self.recommender.cold.all():
                self.explain(0, int(self.recommender.cold.argmin()), None)
        return self


def histories_of(extras: Sequence[Added]) -> Histories:
    """Return what the journal adds to each of some users."""
    rows = np.repeat(np.arange(len(extras)), [len(added) for added in extras])
    items, weights = (np.array(list(chain.from_iterable(each))) for each in (extras, [e.values() for e in extras]))
    return Histories.of(rows, items.astype(np.int64), len(extras), weights.astype(np.float32))


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


def load_served_model(path: Path, settings: ServiceSettings | None = None) -> ServedModel:
    """Return the run at a path, every byte of it checked and every kind of answer tried.

    Items, named sets and the expression for all lists are those of the settings.

    Raises:
        RunFolderError: it is not a whole run, or it was replaced while being read.
        DataError: the items or a set cannot be read.
        FilterError: the expression does not fit the attributes.
    """
    settings = settings or ServiceSettings()
    folder = path.resolve()  # a symbolic link may be pointed elsewhere at any time: follow it once
    manifest = read_manifest(folder)
    version = hashlib.sha256(located(folder, MANIFEST).read_bytes()).hexdigest()[:12]
    run = load_run(folder)
    if read_manifest(folder) != manifest:
        raise RunFolderError(f"{folder} was replaced while it was being loaded; load it again once it is whole")
    recommender = run.recommender
    if settings.items is not None:
        recommender = recommender.with_items(Items.read(settings.items))
    if settings.item_sets:
        ids = recommender.catalogue
        sets = {name: read_item_ids(file, ids) for name, file in settings.item_sets.items()}
        recommender = recommender.with_sets(sets)
    model = ServedModel(replace(run, recommender=recommender), version, str(manifest.get("created", "")))
    if settings.journal is not None:
        reader = JournalReader(settings.journal, (run.update or {}).get("journal"))
        weights = run.source.get("event_weights")
        model.recent = RecentEvents(reader, model.users, model.items, weights)
        model.recent.catch_up()
    return model.warm_up(*(() if settings.where is None else (settings.where,)))
