"""`ServedModel`: one loaded run with everything an answer needs."""

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rankformer.errors import RunFolderError
from rankformer.runs.manifest import MANIFEST, located, read_manifest
from rankformer.runs.saved import Run, load_run
from rankformer.scoring.recommender import RankingOptions
from rankformer.scoring.top_k import TopK
from rankformer.serving.ids import IdIndex

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
        users: the user ids, searched in the order of the ids.
        items: the item ids and titles, searched with the most popular first.
    """

    def __init__(self, run: Run, version: str, created: str) -> None:
        self.run = run
        self.recommender = recommender = run.recommender
        self.version = version
        self.created = created
        self.loaded = time.time()
        seen, items = recommender.seen, recommender.item_ids.ids
        self.users = IdIndex(recommender.user_ids.ids, seen.counts)
        popularity = np.bincount(seen.items, minlength=len(items))
        self.items = IdIndex(items, popularity, recommender.titles, popular_first=True)

    @property
    def age(self) -> float:
        """Seconds since the run was saved, as of now."""
        try:
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.created)).total_seconds())
        except (ValueError, TypeError):  # no date, or one without a time zone
            return time.time() - self.loaded

    def lists(self, users: Sequence[int], options: RankingOptions) -> list[list[Entry]]:
        """Return the ranked lists of user indices."""
        return self._ranked(self.recommender.rank(users, options))

    def session(self, history: Sequence[int], options: RankingOptions) -> dict[str, Any]:
        """Return the ranked list of a new user with these item indices, and whether it fell back to popularity."""
        found, [is_empty] = self.recommender.rank_histories([history], options)
        return {"items": self._ranked(found)[0], "fallback": is_empty}

    def similar(self, item: int, k: int) -> list[Entry]:
        """Return the items most similar to an item index."""
        return self._ranked(self.recommender.rank_similar(item, k))[0]

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
        }

    def history(self, user: int) -> list[int]:
        """Return the distinct item indices of a user, in the order of the interaction log."""
        return list(dict.fromkeys(self.recommender.history_of(user).tolist()))

    def titled(self, item: int) -> Entry:
        """Return an item index as the id and title that callers get."""
        return {"item_id": self.items.values[item], "title": self.items.titles[item]}

    def _ranked(self, found: TopK) -> list[list[Entry]]:
        """Return item indices with their scores as lists for callers; -1 marks an empty position."""
        values, titles = self.items.values, self.items.titles
        return [
            [
                {"item_id": values[item], "title": titles[item], "score": score, "rank": rank}
                for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1)
                if item >= 0
            ]
            for items, scores in zip(found.items.tolist(), found.scores.float().tolist(), strict=True)
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
    manifest = read_manifest(folder)
    version = hashlib.sha256(located(folder, MANIFEST).read_bytes()).hexdigest()[:12]
    run = load_run(folder)
    if read_manifest(folder) != manifest:
        raise RunFolderError(f"{folder} was replaced while it was being loaded; load it again once it is whole")
    return ServedModel(run, version, str(manifest.get("created", ""))).warm_up()
