"""`Recommender`: a scorer with ids, history and titles; answers by index, and in the caller's own ids.

Two levels. By index (`rank`, `rank_histories`, `rank_similar`, `explain_index`): what evaluation, service and commands
share. By raw id (`recommend`, `recommend_histories`, `similar_items`, `explain`): the same, looked up and named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, DataError, NotSupportedError, UnknownIdError
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation, IndexedExplanation, Reason
from rankformer.scoring.histories import Histories
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import TopK, best_columns, top_k


@dataclass(frozen=True)
class RankingOptions:
    """What lists should be like; equal options can be answered together."""

    k: int = 10  # length of a list
    include_seen: bool = False  # whether items of the user's history may be in it
    allow: tuple[int, ...] | None = None  # item indices; when given, nothing else is returned
    block: tuple[int, ...] | None = None  # item indices that are never returned

    def __post_init__(self) -> None:
        if not isinstance(self.k, int | np.integer) or isinstance(self.k, bool) or self.k < 1:
            raise ConfigError(f"k={self.k!r}: a list needs at least one item; use an integer k >= 1")


@dataclass(frozen=True, eq=False)
class Recommender:
    """A scorer together with the ids, the history and the titles needed to answer people."""

    scorer: Scorer  # scores of all items for user indices
    user_ids: IdMap  # raw ids of the users the scorer knows, position = index
    item_ids: IdMap  # raw ids of the items, position = index
    history: Interactions  # interactions of each user, over these same ids; such items are left out of the lists
    item_titles: pa.Array | None = None  # a string per item index; by default the titles of the history, if it has any

    def __post_init__(self) -> None:
        sizes = {"items": (self.scorer.num_items, self.item_ids), "users": (self.scorer.num_users, self.user_ids)}
        for kind, (known, ids) in sizes.items():
            if known != len(ids):
                raise DataError(f"the scorer knows {known} {kind} where there are {len(ids)} ids")
        if self.history.user_ids != self.user_ids or self.history.item_ids != self.item_ids:
            raise DataError(f"{self.history.name} numbers its ids differently from the model; pass the training part")
        if self.item_titles is not None and len(self.item_titles) != len(self.item_ids):
            raise DataError(f"{len(self.item_titles)} titles for {len(self.item_ids)} items; they must match")

    @cached_property
    def seen(self) -> SeenItems:
        """The distinct interactions of the history, built once."""
        return SeenItems.of(self.history)

    @property
    def titles(self) -> pa.Array | None:
        """A string per item index where any are known."""
        return self.item_titles if self.item_titles is not None else self.history.item_titles

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings, where the scorer is made of them.

        Raises:
            NotSupportedError: it is not.
        """
        if not isinstance(self.scorer, Embeddings):
            raise NotSupportedError(f"{type(self.scorer).__name__} scores without embeddings; this needs embeddings")
        return self.scorer

    @property
    def can_fold_in(self) -> bool:
        """Whether new users can be answered."""
        return self.scorer.can_fold_in

    @property
    def can_explain(self) -> bool:
        """Whether scores can be split over the history."""
        return self.scorer.can_explain

    @property
    def can_find_similar(self) -> bool:
        """Whether items can be compared."""
        return self.scorer.can_compare_items

    # By index.

    def rank(self, users: Sequence[int] | Tensor, options: RankingOptions, *, seen: SeenItems | None = None) -> TopK:
        """Return the best items of training users; -1 marks a missing item.

        Args:
            users: user indices, in any order.
            options: length and filters of the lists.
            seen: what is left out unless `include_seen`, the history by default.
        """
        hidden = None if options.include_seen else (self.seen if seen is None else seen)
        return self._top(self.scorer, torch.as_tensor(users, dtype=torch.int64), options, hidden)

    def rank_histories(
        self, histories: Histories | Sequence[Sequence[int]], options: RankingOptions
    ) -> tuple[TopK, list[bool]]:
        """Return the best items of new users, and who has no item at all and so gets the most popular ones.

        Args:
            histories: item indices of each user; an item that is listed twice weighs twice.
            options: length and filters of the lists.
        """
        if not isinstance(histories, Histories):
            histories = Histories.from_lists(histories)
        scorer, everyone = self.scorer.for_histories(histories), torch.arange(histories.num_users)
        rows, items = histories.users.numpy(), histories.items.numpy()
        seen = None
        if not options.include_seen:
            seen = SeenItems.from_pairs(rows, items, histories.num_users, len(self.item_ids))
        lists = self._top(scorer, everyone, options, seen)
        empty = histories.sizes == 0
        if empty.any():
            popular = self._top(self._popularity, torch.zeros(1, dtype=torch.int64), options, None)
            lists.items[empty], lists.scores[empty] = popular.items, popular.scores.to(lists.scores.dtype)
        return lists, empty.tolist()

    def rank_similar(self, item: int, k: int) -> TopK:
        """Return the items most similar to one, itself left out, as one list.

        For embeddings that is by cosine, and a zero embedding is similar to nothing; for item weights it is the weight
        of the other item, if there is one.
        """
        similar = self.scorer.similarities(item)
        similar[item] = float("-inf")
        return best_columns(similar[None], min(k, max(1, len(similar) - 1)))

    def explain_index(
        self, item: int, *, user: int | None = None, history: Sequence[int] | NDArray[Any] | None = None
    ) -> IndexedExplanation:
        """Return the score of an item as an exact sum over a history: of a training user, or of a new one."""
        entries = self.history_of(user) if user is not None else np.asarray(history, dtype=np.int64)
        whole = Histories.of(np.zeros(len(entries)), entries, 1)
        parts = self.scorer.contributions(whole, item, user)
        items, position = np.unique(entries, return_inverse=True)
        sums = np.bincount(position, parts.items, minlength=len(items))
        order = np.argsort(-sums, kind="stable")
        return IndexedExplanation(parts.score, items[order].tolist(), sums[order].tolist(), parts.user, parts.overall)

    def history_of(self, user: int) -> NDArray[np.int64]:
        """Return the item indices of a user's interactions, in the order of the log."""
        order, starts = self._by_user
        return self.history.items[order[starts[user] : starts[user + 1]]].astype(np.int64)

    @cached_property
    def _by_user(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Interactions grouped by user, otherwise in their order, and where each user's start; built once."""
        counts = np.bincount(self.history.users, minlength=len(self.user_ids))
        return np.argsort(self.history.users, kind="stable"), np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _popularity(self) -> Embeddings:
        """One user, for whom the score of an item is the number of its interactions."""
        counts = np.bincount(self.history.items, minlength=len(self.item_ids)).astype(np.float32)
        return Embeddings(torch.ones(1, 1), torch.from_numpy(counts)[:, None])

    def _top(self, scorer: Scorer, users: Tensor, options: RankingOptions, seen: SeenItems | None) -> TopK:
        allow, block = (
            None if indices is None else torch.tensor(indices, dtype=torch.int64)
            for indices in (options.allow, options.block)
        )
        length = min(options.k, max(1, len(self.item_ids)))
        return top_k(scorer, users, length, seen=seen, allow=allow, block=block)

    # By raw id.

    def recommend(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        include_seen: bool = False,
        allow: Sequence[Any] | None = None,
        block: Sequence[Any] | None = None,
    ) -> Recommendations:
        """Return up to k items for each user, best first; fewer where fewer remain.

        Args:
            users: raw user ids, in the order wanted; None for every user.
            k: length of the lists.
            include_seen: whether items of the user's history may be returned.
            allow: raw item ids; when given, nothing else is returned. Ids the model does not know are ignored, but a
                list in which it knows none is rejected.
            block: raw item ids never to be returned; unknown ids as for `allow`.

        Raises:
            UnknownIdError: a user is unknown, or an item list holds no known item.
            ConfigError: k is below 1.
        """
        options = RankingOptions(k, include_seen, self._filter("allow", allow), self._filter("block", block))
        indices = np.arange(len(self.user_ids)) if users is None else _known_indices(self.user_ids, users, "user")
        lists = self.rank(torch.from_numpy(indices), options)
        return self._table("user_id", self.user_ids.take(indices), "item_id", lists)

    def recommend_histories(
        self,
        histories: Mapping[Any, Sequence[Any]],
        k: int = 10,
        *,
        include_seen: bool = False,
        allow: Sequence[Any] | None = None,
        block: Sequence[Any] | None = None,
    ) -> Recommendations:
        """Return up to k items for each new user, given by a history.

        Whoever has no item that the model knows gets the most popular ones; the result's `fallbacks` says who, its
        `unknown_items` what was ignored.

        Args:
            histories: raw item ids for each user, under any name; an item that is listed twice weighs twice.
            k: length of the lists.
            include_seen: whether items of the history may be returned.
            allow: as for `recommend`.
            block: as for `recommend`.

        Raises:
            NotSupportedError: the method has no rule for users outside its training data.
            UnknownIdError: `allow` or `block` holds no known item.
            ConfigError: k is below 1.
        """
        options = RankingOptions(k, include_seen, self._filter("allow", allow), self._filter("block", block))
        rows, items, unknown = _known_entries(self.item_ids, histories)
        lists, empty = self.rank_histories(Histories.of(rows, items, len(histories)), options)
        fallbacks = [name for name, fell_back in zip(histories, empty, strict=True) if fell_back]
        try:
            names = pa.array(list(histories))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(f"histories must be named by values of one type; {error}") from error
        return replace(self._table("user_id", names, "item_id", lists), unknown_items=unknown, fallbacks=fallbacks)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """Return the k items most similar to a given one, itself left out: see `rank_similar`.

        Raises:
            UnknownIdError: the item is unknown.
            ConfigError: k is below 1.
            NotSupportedError: the scorer has neither item embeddings nor item weights.
        """
        RankingOptions(k)  # a wrong k is reported before an unknown item
        index = _known_indices(self.item_ids, [item], "item")
        lists = self.rank_similar(int(index[0]), k)
        return self._table("item_id", self.item_ids.take(index), "similar_item_id", lists)

    def explain(self, user: Any = None, item: Any = None, *, history: Sequence[Any] | None = None) -> Explanation:
        """Return the score of an item as an exact sum over a history: that of a training user, or a given one.

        Args:
            user: raw id of a training user; left out when `history` is given.
            item: raw id of the item to explain.
            history: raw item ids of a new user; those the model does not know are ignored.

        Raises:
            NotSupportedError: the method's scores are not such a sum.
            UnknownIdError: the user or the item is unknown, or every item of the history is.
            ConfigError: both user and history are given, or neither.
        """
        if (user is None) == (history is None) or item is None:
            raise ConfigError("explain needs an item, and either a user or a history")
        if not self.can_explain:
            self.scorer.contributions(Histories.of(np.zeros(0), np.zeros(0), 1), 0, None)  # raises, naming the reason
        asked: dict[str, Any] = {}
        if history is None:
            asked["user"] = int(_known_indices(self.user_ids, [user], "user")[0])
        else:
            _, asked["history"], unknown = _known_entries(self.item_ids, {None: history})
            if not len(asked["history"]):
                raise _unknown_ids(self.item_ids, unknown.get(None, []), "item in the history")
        index = int(_known_indices(self.item_ids, [item], "item")[0])
        found = self.explain_index(index, **asked)
        named = pa.array([index, *found.items], pa.int64())
        ids = self.item_ids.ids.take(named).to_pylist()
        titles = [None] * len(ids) if self.titles is None else self.titles.take(named).to_pylist()
        reasons = tuple(map(Reason, ids[1:], titles[1:], found.contributions))
        parts = found.user_contribution, found.global_contribution
        return Explanation(user, item, titles[0], found.score, reasons, *parts)

    def _filter(self, label: str, raw_ids: Sequence[Any] | None) -> tuple[int, ...] | None:
        """Return the indices of raw item ids, with unknown ones left out."""
        if raw_ids is None:
            return None
        indices = self.item_ids.index_of(_as_list(raw_ids, label))
        known = indices[indices >= 0]
        if len(indices) and not len(known):
            raise _unknown_ids(self.item_ids, list(raw_ids), f"item in {label}")
        return tuple(known.tolist())

    def _table(self, asker: str, asked_for: pa.Array, answer: str, lists: TopK) -> Recommendations:
        """Return lists (b, k), for the raw ids `asked_for` (b,), as a table; `asker` and `answer` name its columns."""
        items: NDArray[np.int64] = lists.items.cpu().numpy()
        kept = items >= 0
        rows, positions = np.nonzero(kept)
        chosen = pa.array(items[kept])
        columns = {
            asker: asked_for.take(pa.array(rows)),
            answer: self.item_ids.ids.take(chosen),
            "score": pa.array(lists.scores.float().cpu().numpy()[kept]),
            "rank": pa.array((positions + 1).astype(np.int32)),
        }
        if self.titles is not None:
            columns["title"] = self.titles.take(chosen)
        return Recommendations(pa.table(columns))


def _known_indices(ids: IdMap, raw_ids: Sequence[Any], kind: str) -> NDArray[np.int64]:
    """Return the index of every raw id, or refuse naming those that are unknown."""
    wanted = _as_list(raw_ids, f"{kind}s")
    indices = ids.index_of(wanted)
    if (indices < 0).any():
        raise _unknown_ids(ids, [wanted[row] for row in np.flatnonzero(indices < 0)], kind)
    return indices


def _known_entries(
    ids: IdMap, histories: Mapping[Any, Sequence[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[Any, list[Any]]]:
    """Return (row, item index) of every known entry of the histories, and the unknown ids under each name."""
    if not isinstance(histories, Mapping):
        raise ConfigError(f"histories={histories!r}: expected a dictionary; write {{'a name': [item, item]}}")
    raw = [_as_list(history, "history") for history in histories.values()]
    rows = np.repeat(np.arange(len(raw)), [len(history) for history in raw])
    entries = [value for history in raw for value in history]
    indices = ids.index_of(entries)
    names, unknown = list(histories), dict[Any, list[Any]]()
    for position in np.flatnonzero(indices < 0):
        unknown.setdefault(names[rows[position]], []).append(entries[position])
    return rows[indices >= 0], indices[indices >= 0], unknown


def _as_list(raw_ids: Sequence[Any], label: str) -> list[Any]:
    """Return the ids as a list of plain values; one string is a likely mistake: it would be read letter by letter."""
    if isinstance(raw_ids, str | bytes):
        raise ConfigError(f"{label}={raw_ids!r}: a list of ids is needed; write [{raw_ids!r}]")
    for method in ("to_pylist", "tolist", "to_list"):  # Arrow; numpy and pandas; polars
        if hasattr(raw_ids, method):
            raw_ids = getattr(raw_ids, method)()
            break
    if not isinstance(raw_ids, Iterable):
        raise ConfigError(f"{label}={raw_ids!r}: a list of ids is needed; write [{raw_ids!r}]")
    if hasattr(raw_ids, "columns"):
        raise ConfigError(f"{label} is a table with several columns; pass the one with the ids")
    return list(raw_ids)


def _unknown_ids(ids: IdMap, missing: list[Any], kind: str) -> UnknownIdError:
    """Return the error that names the first of the missing ids and shows what ids look like."""
    named = ", ".join(repr(value) for value in missing[:3]) + (", ..." if len(missing) > 3 else "")
    examples = " or ".join(repr(value) for value in ids.ids.slice(0, 2).to_pylist()) or "(there are none)"
    return UnknownIdError(f"unknown {kind}: {named} ({len(missing)} not known to the model); ids look like {examples}")
