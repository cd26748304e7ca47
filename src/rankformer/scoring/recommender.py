"""`Recommender`: answers in the caller's own ids, looked up and named."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rankformer.errors import ConfigError
from rankformer.scoring.explanation import Explanation, Reason
from rankformer.scoring.histories import Histories
from rankformer.scoring.index_recommender import IndexRecommender
from rankformer.scoring.options import FALLBACKS, ListFilters, RankingOptions
from rankformer.scoring.raw_ids import as_list, known_entries, known_indices, names_of, unknown_ids
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.top_k import TopK

_TABLE_NAMES = ("user_id", "item_id", "similar_item_id", "score", "rank", "title", "cold")


@dataclass(frozen=True, eq=False)
class Recommender(IndexRecommender):
    """A scorer with the ids, the history and the titles needed to answer people.

    By raw id: `recommend`, `recommend_histories`, `similar_items`, `explain`; by index: see `IndexRecommender`.
    """

    def recommend(
        self,
        users: Sequence[Any] | None = None,
        k: int = 10,
        *,
        mask: str = "known",
        fallback: str | None = None,
        **filters: Unpack[ListFilters],
    ) -> Recommendations:
        """Return up to k items for each user, best first; fewer where fewer remain.

        Whoever has no interaction the model was fitted on gets the most popular items; the result's `fallbacks` says
        who.

        Args:
            users: raw user ids, in the order wanted; None for every user.
            k: length of the lists.
            mask: what counts as the user's: every "known" interaction of the log, or those of "train" as in evaluation.
            fallback: "popularity" answers unknown users too, "none" leaves the lists of whoever would need it empty.
            filters: what lists may hold.
                include_seen: whether items that the user has may be returned.
                allow: raw item ids; when given, nothing else is returned. Ids the model does not know are ignored, but
                    a list in which it knows none is rejected.
                block: raw item ids never to be returned; unknown ids as for `allow`.
                where: expression over attributes that items must meet: see `rankformer.scoring.filters`.
                at_most: N for an attribute: no list has more than N items of one value; unknown values are free.
                boost: weight for an expression: items that meet it get weight times the standard deviation of the
                    user's scores added to their own; a weight below 0 buries. Weights of several expressions add up.
                include_cold: whether items without interactions may be returned, scored by their attributes; by
                    default they are.

        Raises:
            UnknownIdError: a user is unknown and has no fallback, or an item list holds no known item.
            ConfigError: k is below 1, mask or fallback is not one of these, or an expression does not fit the items.
        """
        options = self._options(k, **filters)
        for name, value, known in (("mask", mask, ("known", "train")), ("fallback", fallback, FALLBACKS)):
            if value is not None and value not in known:
                raise ConfigError(f"{name}={value!r}: expected {' or '.join(known)}")
        everyone = self.user_ids.ids if users is None else as_list(users, "users")
        indices = np.arange(len(everyone)) if users is None else self.user_ids.index_of(everyone)
        if (indices < 0).any() and fallback != "popularity":
            remedy = "fallback='popularity' (--fallback popularity) lists popular items for them"
            raise unknown_ids(self.user_ids, [everyone[row] for row in np.flatnonzero(indices < 0)], "user", remedy)
        lists = self.rank(torch.from_numpy(indices), options, seen=self.fitted if mask == "train" else None)
        names = self.user_ids.take(indices) if (indices >= 0).all() else names_of(self.user_ids, everyone)
        cold = (indices < 0) | self.cold[indices]
        if fallback == "none":
            lists.items[torch.from_numpy(cold)] = -1
            cold[:] = False
        fallbacks = names.filter(pa.array(cold)).to_pylist()
        return replace(self._table("user_id", names, "item_id", lists), fallbacks=fallbacks)

    def recommend_histories(
        self,
        histories: Mapping[Any, Sequence[Any]],
        k: int = 10,
        *,
        extend: bool = False,
        **filters: Unpack[ListFilters],
    ) -> Recommendations:
        """Return up to k items for each new user, given by a history, or for known users who have new items.

        Whoever has no item that the model knows gets the most popular ones; the result's `fallbacks` says who, its
        `unknown_items` what was ignored, its `left_out` which members of a blend have no part in the lists.

        Args:
            histories: raw item ids for each user, under any name; an item that is listed twice weighs twice.
            k: length of the lists.
            extend: whether the names are raw user ids, whose known interactions come before these items; a name that
                is unknown is a new user.
            filters: as for `recommend`.

        Raises:
            NotSupportedError: the method has no rule for users outside its training data.
            UnknownIdError: `allow` or `block` holds no known item.
            ConfigError: k is below 1.
        """
        options = self._options(k, **filters)
        rows, items, unknown = known_entries(self.catalogue if extend else self.item_ids, histories)
        users = self.user_ids.index_of(histories).tolist() if extend else None
        lists, empty = self.rank_histories(Histories.of(rows, items, len(histories)), options, users)
        fallbacks = [name for name, fell_back in zip(histories, empty, strict=True) if fell_back]
        try:
            names = pa.array(list(histories))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ConfigError(f"histories must be named by values of one type; {error}") from error
        gaps: dict[str, Any] = {
            "unknown_items": unknown,
            "fallbacks": fallbacks,
            "left_out": self.scorer.left_out_of_fold_in,
        }
        return replace(self._table("user_id", names, "item_id", lists), **gaps)

    def similar_items(self, item: Any, k: int = 10, **filters: Unpack[ListFilters]) -> Recommendations:
        """Return the k items most similar to a given one, itself left out: see `rank_similar`, `recommend` for filters.

        Raises:
            UnknownIdError: the item is unknown.
            ConfigError: k is below 1.
            NotSupportedError: the scorer has neither item embeddings nor item weights.
        """
        options = self._options(k, **filters)  # a wrong k is reported before an unknown item
        index = int(known_indices(self.catalogue, [item], "item")[0])
        lists = self.rank_similar(index, options)
        return self._table("item_id", self.catalogue.ids.slice(index, 1), "similar_item_id", lists)

    def explain(self, user: Any = None, item: Any = None, *, history: Sequence[Any] | None = None) -> Explanation:
        """Return the score of an item as an exact sum over a history: that of a training user, or a given one.

        Args:
            user: raw id of a training user.
            item: raw id of the item to explain.
            history: raw item ids of a new user, or with `user` those that follow the known interactions; those the
                model does not know are ignored.

        Raises:
            NotSupportedError: the method's scores are not such a sum.
            UnknownIdError: the user or the item is unknown, or every item of the history is.
            ConfigError: neither user nor history is given.
        """
        if (user is None and history is None) or item is None:
            raise ConfigError("explain needs an item, and a user, a history or both")
        if not self.can_explain:
            self.scorer.contributions(Histories.of(np.zeros(0), np.zeros(0), 1), 0, None)  # raises, naming the reason
        asked: dict[str, Any] = {}
        if user is not None:
            asked["user"] = int(known_indices(self.user_ids, [user], "user")[0])
        if history is not None:
            _, asked["history"], unknown = known_entries(self.item_ids, {None: history})
            if not len(asked["history"]):
                raise unknown_ids(self.item_ids, unknown.get(None, []), "item in the history")
        index = int(known_indices(self.catalogue, [item], "item")[0])
        found = self.explain_index(index, **asked)
        named = pa.array([index, *(reason.item_id for reason in found.reasons)], pa.int64())
        ids = self.item_ids.ids.take(named).to_pylist()
        titles = [None] * len(ids) if self.titles is None else self.titles.take(named).to_pylist()
        reasons = map(Reason, ids[1:], titles[1:], (reason.contribution for reason in found.reasons))
        return replace(found, user_id=user, item_id=item, title=titles[0], reasons=tuple(reasons))

    def _options(
        self,
        k: int,
        include_seen: bool = False,
        allow: Sequence[Any] | None = None,
        block: Sequence[Any] | None = None,
        where: str | None = None,
        at_most: Mapping[str, int] | None = None,
        boost: Mapping[str, float] | None = None,
        include_cold: bool = True,
    ) -> RankingOptions:
        """Return what a caller asks for, in item indices."""
        listed = self._filter("allow", allow), self._filter("block", block)
        rules = tuple((at_most or {}).items()), tuple((boost or {}).items())
        return RankingOptions(k, include_seen, *listed, () if where is None else (where,), *rules, include_cold)

    def _filter(self, label: str, raw_ids: Sequence[Any] | None) -> tuple[int, ...] | None:
        """Return the indices of raw item ids, with unknown ones left out."""
        if raw_ids is None:
            return None
        wanted = as_list(raw_ids, label)
        indices = self.catalogue.index_of(wanted)
        known = indices[indices >= 0]
        if len(indices) and not len(known):
            raise unknown_ids(self.item_ids, wanted, f"item in {label}")
        return tuple(known.tolist())

    def _table(self, asker: str, asked_for: pa.Array, answer: str, lists: TopK) -> Recommendations:
        """Return lists (b, k), for the raw ids `asked_for` (b,), as a table; `asker` and `answer` name its columns."""
        items: NDArray[np.int64] = lists.items.cpu().numpy()
        kept = items >= 0
        rows, positions = np.nonzero(kept)
        chosen = pa.array(items[kept])
        columns = {
            asker: asked_for.take(pa.array(rows)),
            answer: self.catalogue.ids.take(chosen),
            "score": pa.array(lists.scores.float().cpu().numpy()[kept]),
            "rank": pa.array((positions + 1).astype(np.int32)),
        }
        if self.titles is not None:
            columns["title"] = self.titles.take(chosen)
        for name, values in ({} if self.items is None else self.items.columns).items():
            columns[f"item.{name}" if name in _TABLE_NAMES else name] = values.take(chosen)
        if self.cold_items is not None:
            columns["cold"] = pa.array(self.is_cold[items[kept]])
        return Recommendations(pa.table(columns))
