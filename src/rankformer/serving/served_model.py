"""`ServedModel`: one loaded run with everything an answer needs laid out once, so that requests only look things up."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankformer.errors import RunFolderError
from rankformer.runs.run import MANIFEST, Run, load_run, read_manifest
from rankformer.scoring.recommender import Recommender
from rankformer.scoring.top_k import top_k
from rankformer.serving.ids import WireIds
from rankformer.serving.search import Shelf

Entry = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """What a list should be like; equal wishes can be answered together.

    Attributes:
        k: its length.
        include_seen: whether items of the user's history may be in it.
        allow: item indices outside of which nothing is returned, or None.
        block: item indices that are never returned, or None.
    """

    k: int
    include_seen: bool = False
    allow: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None


class ServedModel:
    """A run, ready to answer; it never changes, so any number of threads may ask it.

    Attributes:
        run: what the folder holds.
        version: first 12 hexadecimal digits of the manifest's SHA-256.
        created: when the run was saved, ISO 8601.
        loaded: when it was loaded, seconds of `time.time`.
        users: the user ids.
        items: the item ids.
        titles: a text or None per item index.
    """

    def __init__(self, run: Run, version: str, created: str) -> None:
        self.run = run
        self.version = version
        self.created = created
        self.loaded = time.time()
        recommender = run.recommender
        self.users = WireIds(recommender.user_ids.ids)
        self.items = WireIds(recommender.item_ids.ids)
        titles = recommender.titles
        self.titles: list[str | None] = [None] * len(self.items) if titles is None else titles.to_pylist()

    @property
    def recommender(self) -> Recommender:
        """What answers, in raw ids."""
        return self.run.recommender

    @property
    def age(self) -> float:
        """Seconds since the run was saved, as of now."""
        try:
            return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.created)).total_seconds())
        except (ValueError, TypeError):  # no date, or one without a time zone
            return time.time() - self.loaded

    def lists(self, users: Sequence[int], wish: Wish) -> list[list[Entry]]:
        """Return the ranked lists of user indices: those of `Recommender.recommend`, without its tables."""
        found = top_k(
            self.recommender.scorer,
            torch.tensor(users, dtype=torch.int64),
            min(wish.k, max(1, len(self.items))),
            seen=None if wish.include_seen else self.recommender.seen,
            allow=_tensor(wish.allow),
            block=_tensor(wish.block),
        )
        pairs = zip(found.items.tolist(), found.scores.float().tolist(), strict=True)
        return [self.entries(items, scores) for items, scores in pairs]

    def entries(self, items: Sequence[int], scores: Sequence[float]) -> list[Entry]:
        """Return item indices with their scores as a list that can travel; -1 marks an empty place."""
        values, titles = self.items.values, self.titles
        return [
            {"item_id": values[item], "title": titles[item], "score": score, "rank": place}
            for place, (item, score) in enumerate(zip(items, scores, strict=True), start=1)
            if item >= 0
        ]

    def raw_user(self, index: int) -> Any:
        """Return the raw id of a user index, as the recommender wants it."""
        return self.recommender.user_ids.ids[index].as_py()

    def raw_item(self, index: int) -> Any:
        """Return the raw id of an item index, as the recommender wants it."""
        return self.recommender.item_ids.ids[index].as_py()

    @cached_property
    def user_shelf(self) -> Shelf:
        """The users, to be searched by id; in the order of the ids."""
        return Shelf([self.users.texts], self.recommender.seen.counts, popular_first=False)

    @cached_property
    def item_shelf(self) -> Shelf:
        """The items, to be searched by id or title; most popular first."""
        texts = [self.items.texts] + ([] if self.recommender.titles is None else [self.recommender.titles])
        counts = np.bincount(self.recommender.seen.items, minlength=len(self.items))
        return Shelf(texts, counts, popular_first=True)

    @cached_property
    def _history_order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows of the history, grouped by user, otherwise in their order."""
        return np.argsort(self.recommender.history.users, kind="stable")

    @cached_property
    def _history_starts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        counts = np.bincount(self.recommender.history.users, minlength=len(self.users))
        return np.concatenate([[0], np.cumsum(counts)])

    def history(self, user: int) -> list[int]:
        """Return the distinct item indices of a user, in the order of the training log."""
        rows = self._history_order[self._history_starts[user] : self._history_starts[user + 1]]
        return list(dict.fromkeys(self.recommender.history.items[rows].tolist()))

    @cached_property
    def can(self) -> dict[str, bool]:
        """What this method is able to do."""
        recommender = self.recommender
        return {
            "fold_in": recommender.can_fold_in,
            "explain": recommender.can_explain,
            "similar": recommender.can_find_similar,
        }

    def prepare(self) -> "ServedModel":
        """Return the model after asking it one question of each kind, so that no request is the first."""
        if len(self.users) and len(self.items):
            user, item = self.raw_user(0), self.raw_item(0)
            self.lists([0], Wish(1))
            self.history(0)
            if self.can["similar"]:
                self.recommender.similar_items(item, 1)
            if self.can["fold_in"]:
                self.recommender.recommend_histories({"": [item]}, 1)
            if self.can["explain"]:
                self.recommender.explain(user, item)
        self.user_shelf.find("", 1)
        self.item_shelf.find("", 1)
        return self


def load_served_model(path: Path) -> ServedModel:
    """Return the run that a path leads to right now, every byte of it checked and every kind of answer tried.

    Raises:
        RunFolderError: it is not a whole run, or it was replaced while being read.
    """
    folder = path.resolve()  # a symbolic link may be pointed elsewhere at any time: follow it once
    version = _version_of(folder)
    created = str(read_manifest(folder).get("created", ""))
    run = load_run(folder)
    if _version_of(folder) != version:
        raise RunFolderError(f"{folder} was replaced while it was being loaded; load it again once it is whole")
    return ServedModel(run, version, created).prepare()


def _version_of(folder: Path) -> str:
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise RunFolderError(f"{folder / MANIFEST} cannot be read: {error.strerror}") from error


def _tensor(indices: tuple[int, ...] | None) -> Tensor | None:
    return None if indices is None else torch.tensor(indices, dtype=torch.int64)
