"""`Recommender`: a scorer with ids, history and items; answers by index, and in the caller's own ids.

Two levels. By index (`rank`, `rank_histories`, `rank_similar`, `explain_index`): what evaluation, service and commands
share. By raw id (`recommend`, `recommend_histories`, `similar_items`, `explain`): the same, looked up and named.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.errors import ConfigError, DataError, FilterError, NotSupportedError, UnknownIdError
from rankformer.graph.collectives import Ranks
from rankformer.scoring.base import ScoreMatrix, Scorer
from rankformer.scoring.cold_items import ColdItems, WithColdItems, learn_cold_items
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation, IndexedExplanation, Reason
from rankformer.scoring.filters import ListRules, where_mask
from rankformer.scoring.histories import Histories
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import TopK, share_of, top_k


@dataclass(frozen=True)
class RankingOptions:
    """What lists should be like; equal options can be answered together."""

    k: int = 10  # length of a list
    include_seen: bool = False  # whether items of the user's history may be in it
    allow: tuple[int, ...] | None = None  # item indices; when given, nothing else is returned
    block: tuple[int, ...] | None = None  # item indices that are never returned
    where: tuple[str, ...] = ()  # expressions over attributes that every item meets: see `scoring.filters`
    at_most: tuple[tuple[str, int], ...] = ()  # (attribute, N): at most N items of a list have the same value of it
    boost: tuple[tuple[str, float], ...] = ()  # (expression, w): w standard deviations of the user's scores are added
    include_cold: bool = False  # whether items without interactions are scored by their attributes and listed too

    def __post_init__(self) -> None:
        if not isinstance(self.k, int | np.integer) or isinstance(self.k, bool) or self.k < 1:
            raise ConfigError(f"k={self.k!r}: a list needs at least one item; use an integer k >= 1")
        for name, most in self.at_most:
            if isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise ConfigError(f"at_most {name}={most!r}: expected an integer from 1")
        for text, weight in self.boost:
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
                raise ConfigError(f"boost {text!r}: {weight!r}: expected a finite number, below 0 to bury")


class ListFilters(TypedDict, total=False):
    """What callers may ask of lists in their own ids; `Recommender.recommend` says what each means."""

    include_seen: bool
    allow: Sequence[Any] | None
    block: Sequence[Any] | None
    where: str | None
    at_most: Mapping[str, int] | None
    boost: Mapping[str, float] | None
    include_cold: bool


_CACHED_FILTERS = 64
_TABLE_NAMES = ("user_id", "item_id", "similar_item_id", "score", "rank", "title", "cold")


@dataclass(frozen=True, eq=False)
class Recommender:
    """A scorer together with the ids, the history and the titles needed to answer people."""

    scorer: Scorer  # scores of all items for user indices
    user_ids: IdMap  # raw ids of the users the scorer knows, position = index
    item_ids: IdMap  # raw ids of the items, position = index
    history: Interactions  # what the scorer was fitted on, over these same ids
    item_titles: pa.Array | None = None  # a string per item index; by default the titles of the history, if it has any
    known: Interactions = None  # type: ignore[assignment]  # left out of the lists; by default the history
    items: Items | None = None  # titles and attributes of these items, followed by those of items not in the history
    cold_items: ColdItems | None = None  # how items without interactions are scored
    item_counts: NDArray[np.float64] | None = None  # what the popularity of items is where the history is a block

    def __post_init__(self) -> None:
        if self.known is None:
            object.__setattr__(self, "known", self.history)
        sizes = {"items": (self.scorer.num_items, self.item_ids), "users": (self.scorer.num_users, self.user_ids)}
        for kind, (known, ids) in sizes.items():
            if known != len(ids):
                raise DataError(f"the scorer knows {known} {kind} where there are {len(ids)} ids")
        for log in (self.history, self.known):
            if log.user_ids != self.user_ids or log.item_ids != self.item_ids:
                raise DataError(f"{log.name} numbers its ids differently from the model; pass the training part")
        if self.item_titles is not None and len(self.item_titles) != len(self.item_ids):
            raise DataError(f"{len(self.item_titles)} titles for {len(self.item_ids)} items; they must match")
        if not self.catalogue.ids.slice(0, len(self.item_ids)).equals(self.item_ids.ids):
            raise DataError("the items are not in the order of the model's; use with_items")
        if self.cold_items is not None:
            shape = len(self.cold_items.items), len(self.item_ids)
            in_order = np.diff(self.cold_items.items, prepend=-1, append=len(self.catalogue)) > 0
            if self.cold_items.weights.shape != shape or not in_order.all():
                raise DataError(f"cold items must be distinct items, in order, with weights of shape {shape}")

    def with_items(self, items: Items) -> "Recommender":
        """Return the same recommender with other titles and attributes; those without interactions become cold items.

        Raises:
            DataError: the item ids are of another type than the model's.
        """
        aligned = items.align(self.item_ids, self.titles if self.items is None else self.history.item_titles)
        return replace(self, items=aligned, cold_items=learn_cold_items(aligned, self.scorer, self.fitted))

    def with_sets(self, sets: Mapping[str, Sequence[Any]]) -> "Recommender":
        """Return the same recommender with named sets of raw item ids, which `where` knows as boolean attributes."""
        items = Items(self.item_ids, titles=self.titles) if self.items is None else self.items
        return replace(self, items=items.with_sets(sets))

    @property
    def catalogue(self) -> IdMap:
        """The raw ids of all items that an answer may name: the model's, and those known by their attributes alone."""
        return self.item_ids if self.items is None else self.items.ids

    @cached_property
    def is_cold(self) -> NDArray[np.bool_]:
        """Whether each item of the catalogue is scored by its attributes when cold items are included."""
        flags = np.zeros(len(self.catalogue), dtype=np.bool_)
        if self.cold_items is not None:
            flags[self.cold_items.items] = True
        return flags

    @cached_property
    def seen(self) -> SeenItems:
        """The distinct known interactions, built once."""
        return SeenItems.of(self.known)

    @cached_property
    def fitted(self) -> SeenItems:
        """The distinct interactions of the history, built once."""
        return self.seen if self.known is self.history else SeenItems.of(self.history)

    @cached_property
    def cold(self) -> NDArray[np.bool_]:
        """Whether each user is one the scorer knows nothing about, (n,): popularity answers for them."""
        cold: NDArray[np.bool_] = np.bincount(self.history.users, minlength=len(self.user_ids)) == 0
        return cold

    @cached_property
    def popularity(self) -> NDArray[np.float32]:
        """Interactions of each item in the history, or their weights, (m,): the scores of whoever is cold."""
        history = self.history
        if self.item_counts is not None:
            return self.item_counts.astype(np.float32)
        return np.bincount(history.items, history.weights, minlength=len(self.item_ids)).astype(np.float32)

    @property
    def titles(self) -> pa.Array | None:
        """A string per item of the catalogue where any are known."""
        if self.items is not None:
            return self.items.titles
        return self.item_titles if self.item_titles is not None else self.history.item_titles

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings, where the scorer is made of them; else a NotSupportedError."""
        return self.scorer.as_embeddings()

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
        """Return the best items of users; -1 marks a missing item.

        Whoever the scorer knows nothing about (`cold`, or unknown altogether) gets the most popular items.

        Args:
            users: user indices, in any order; -1 for an unknown user.
            options: length and filters of the lists.
            seen: what is left out unless `include_seen`, all known interactions by default.
        """
        hidden = None if options.include_seen else (self.seen if seen is None else seen)
        asked = torch.as_tensor(users, dtype=torch.int64)
        unknown, known = asked < 0, asked.clamp(min=0)
        lists = self._top(self.scorer, known, options, hidden)
        cold = torch.from_numpy(self.cold)[known] & ~unknown
        for fallback, own in ((cold, hidden), (unknown, None)):
            if fallback.any():
                popular = self._top(self._popularity_of(len(self.user_ids)), known[fallback], _warm(options), own)
                rows = fallback.to(lists.items.device)
                lists.items[rows], lists.scores[rows] = popular.items.to(lists.items), popular.scores.to(lists.scores)
        return lists

    def rank_histories(
        self,
        histories: Histories | Sequence[Sequence[int]],
        options: RankingOptions,
        users: Sequence[int] | None = None,
        *,
        strict: bool = True,
    ) -> tuple[TopK, list[bool]]:
        """Return the best items by histories, and who has no item at all and so gets the most popular ones.

        Args:
            histories: item indices of each user; an item that is listed twice weighs twice. Items of the catalogue that
                the scorer does not know are only left out of the lists.
            options: length and filters of the lists.
            users: index of each user, whose known interactions come before the history; -1 for a new user, as are all
                by default.
            strict: whether a method that cannot fold in raises; else the scores of its users stay what they were, and
                histories are only left out of the lists.
        """
        if not isinstance(histories, Histories):
            histories = Histories.from_lists(histories)
        count, catalogue = histories.num_users, len(self.catalogue)
        folded = self._with_history(histories, users, self.history, self._fitted_by_user)
        everyone, empty = torch.arange(count), folded.sizes == 0
        indices = torch.tensor([-1] * count if users is None else users)
        scorer: ScoreMatrix = _Rows(self.scorer, indices.clamp(min=0))
        if strict or self.can_fold_in:
            scorer = self.scorer.for_histories(folded)
        else:
            empty = (indices < 0) | torch.from_numpy(self.cold)[indices.clamp(min=0)]
        seen = None
        if not options.include_seen:
            whole = folded if users is None else self._with_history(histories, users, self.known, self._known_by_user)
            rows, items = (
                torch.cat([getattr(each, name) for each in (whole, histories)]).numpy() for name in ("users", "items")
            )
            size = catalogue if options.include_cold and self.cold_items is not None else len(self.item_ids)
            seen = SeenItems.from_pairs(rows[items < size], items[items < size], count, size)
        lists = self._top(scorer, everyone, options, seen)
        if empty.any():
            narrow = None if seen is None else self._narrowed(seen)
            popular = self._top(self._popularity_of(count), everyone[empty], _warm(options), narrow)
            lists.items[empty], lists.scores[empty] = popular.items, popular.scores.to(lists.scores.dtype)
        return lists, empty.tolist()

    def _with_history(
        self, histories: Histories, users: Sequence[int] | None, log: Interactions, by_user: "_ByUser"
    ) -> Histories:
        """Return histories after the interactions of a log that their users have, as far as the scorer knows items."""
        warm = histories.items < len(self.item_ids)
        rows, items = histories.users[warm].numpy(), histories.items[warm].numpy()
        added = np.ones(len(rows), np.float32) if histories.weights is None else histories.weights[warm].numpy()
        known = [_rows_of(by_user, user) if user >= 0 else np.zeros(0, np.int64) for user in users or ()]
        of_log = np.concatenate([np.zeros(0, np.int64), *known])
        owners = np.repeat(np.arange(len(known)), [len(each) for each in known])
        weights = None if log.weights is None else np.concatenate([log.weights[of_log], added])
        entries = np.concatenate([owners, rows]), np.concatenate([log.items[of_log], items])
        if users is None:
            weights = None if histories.weights is None else added
        return Histories.of(*entries, histories.num_users, weights)

    def rank_similar(self, item: int, options: RankingOptions | int) -> TopK:
        """Return the items most similar to one, itself left out, as one list; of options, the length alone will do.

        For embeddings that is by cosine, and a zero embedding is similar to nothing; for item weights it is the weight
        of the other item, if there is one. Boosts count in standard deviations of the similarities.
        """
        self._check_warm(item)
        options = options if isinstance(options, RankingOptions) else RankingOptions(options)
        similar = _Similarities(self.scorer.similarities(item))
        itself = SeenItems.from_pairs(np.zeros(1), np.array([item]), 1, len(self.item_ids))
        length = min(options.k, max(1, len(self.item_ids) - 1))
        return self._top(similar, torch.zeros(1, dtype=torch.int64), replace(_warm(options), k=length), itself)

    def explain_index(
        self, item: int, *, user: int | None = None, history: Sequence[int] | NDArray[Any] | None = None
    ) -> IndexedExplanation:
        """Return the score of an item as an exact sum over a history: of a training user, or of a new one.

        With both, the history follows the known interactions of the user, as in `rank_histories`.
        """
        self._check_warm(item)
        if history is not None and user is not None:
            added = Histories.of(np.zeros(len(history)), np.asarray(history, dtype=np.int64), 1)
            whole = self._with_history(added, [user], self.history, self._fitted_by_user)
            return self._explained(whole, item, None)
        if user is not None and self.cold[user]:
            name = self.user_ids.ids[user].as_py()
            raise UnknownIdError(
                f"user {name!r} has no interaction the model was fitted on and gets the most popular items; "
                "there is nothing to explain"
            )
        log, rows = self.history, None if user is None else _rows_of(self._fitted_by_user, user)
        entries = np.asarray(history, dtype=np.int64) if rows is None else log.items[rows].astype(np.int64)
        weights = None if rows is None or log.weights is None else log.weights[rows]
        return self._explained(Histories.of(np.zeros(len(entries)), entries, 1, weights), item, user)

    def _explained(self, whole: Histories, item: int, user: int | None) -> IndexedExplanation:
        parts = self.scorer.contributions(whole, item, user)
        items, position = np.unique(whole.items.numpy(), return_inverse=True)
        sums = np.bincount(position, parts.items, minlength=len(items))
        order = np.argsort(-sums, kind="stable")
        contributions = items[order].tolist(), sums[order].tolist()
        return IndexedExplanation(parts.score, *contributions, parts.user, parts.overall, parts.members)

    def _check_warm(self, item: int) -> None:
        if item >= len(self.item_ids) or self.is_cold[item]:
            name = self.catalogue.ids[item].as_py()
            raise NotSupportedError(f"item {name!r} has no interactions: lists score it by its attributes, and no more")

    def history_of(self, user: int) -> NDArray[np.int64]:
        """Return the item indices of a user's known interactions, in the order of the log."""
        return self.known.items[_rows_of(self._known_by_user, user)].astype(np.int64)

    @cached_property
    def _known_by_user(self) -> "_ByUser":
        return _by_user(self.known)

    @cached_property
    def _fitted_by_user(self) -> "_ByUser":
        return self._known_by_user if self.known is self.history else _by_user(self.history)

    def _popularity_of(self, users: int) -> Embeddings:
        """Return the scorer of whoever is cold: the same popularity for every user."""
        return Embeddings(torch.ones(1, 1).expand(users, 1), torch.from_numpy(self.popularity)[:, None])

    def _top(self, scorer: ScoreMatrix, users: Tensor, options: RankingOptions, seen: SeenItems | None) -> TopK:
        if options.include_cold and self.cold_items is not None:
            scorer = WithColdItems(scorer, self.cold_items, len(self.catalogue))
            if seen is not None and seen.num_items < len(self.catalogue):
                seen = self._wide_seen if seen is self.seen else self._widened(seen)
        size = scorer.num_items
        allow, block = (
            None if indices is None else torch.tensor([index for index in indices if index < size], dtype=torch.int64)
            for indices in (options.allow, options.block)
        )
        length = min(options.k, max(1, len(self.catalogue)))  # with and without cold items lists have one width
        rules = self.rules(options, size)
        return top_k(scorer, users, length, seen=seen, allow=allow, block=block, rules=rules)

    def share_of(self, ranks: Ranks) -> slice:
        """Return the users whose lists a rank makes where several share them: see `top_k.share_of`."""
        cold = self.cold_items
        scorer = self.scorer if cold is None else WithColdItems(self.scorer, cold, len(self.catalogue))
        return share_of(scorer, len(self.user_ids), ranks)

    def rules(self, options: RankingOptions, size: int) -> ListRules | None:
        """Return what options ask of the first `size` items of the catalogue, None where that is nothing.

        Raises:
            ConfigError: an expression cannot be read, or an attribute is not known.
        """
        if not (options.where or options.at_most or options.boost):
            return None
        masks = [self._mask_of(text)[:size] for text in options.where]
        allowed = torch.stack(masks).all(0) if masks else None
        boost = torch.zeros(size) if options.boost else None
        for text, weight in options.boost:
            assert boost is not None
            boost += weight * self._mask_of(text)[:size]
        return ListRules(allowed, boost, tuple((self._codes_of(name)[:size], most) for name, most in options.at_most))

    @cached_property
    def filter_columns(self) -> dict[str, pa.Array]:
        """What expressions may name: the attributes, and item_id, title and cold where no attribute has that name."""
        columns = {"cold": pa.array(self.is_cold)}
        if pa.types.is_string(self.catalogue.ids.type) or pa.types.is_integer(self.catalogue.ids.type):
            columns["item_id"] = self.catalogue.ids
        if self.titles is not None:
            columns["title"] = self.titles.cast(pa.string())
        return {**columns, **({} if self.items is None else self.items.columns)}

    @cached_property
    def _mask_of(self) -> Callable[[str], Tensor]:
        """The items of the catalogue that meet an expression; the latest ones are kept."""
        return lru_cache(_CACHED_FILTERS)(lambda text: torch.from_numpy(where_mask(text, self.filter_columns).copy()))

    @cached_property
    def _codes_of(self) -> Callable[[str], Tensor]:
        """The value of an attribute as a number for each item of the catalogue, -1 where it is unknown."""

        def codes_of(name: str) -> Tensor:
            column = self.filter_columns.get(name)
            if column is None or pa.types.is_list(column.type):
                usable = [each for each, values in self.filter_columns.items() if not pa.types.is_list(values.type)]
                found = "no such attribute" if column is None else "an item may have several of it"
                raise FilterError(f"at_most {name!r}: {found}; expected one of {', '.join(usable)}")
            codes = pc.fill_null(column.dictionary_encode().indices, -1)
            return torch.from_numpy(codes.to_numpy(zero_copy_only=False).astype(np.int64))

        return lru_cache(_CACHED_FILTERS)(codes_of)

    @cached_property
    def _wide_seen(self) -> SeenItems:
        return self._widened(self.seen)

    def _widened(self, seen: SeenItems) -> SeenItems:
        """Return the same interactions over the whole catalogue."""
        return SeenItems(seen.offsets, seen.items, len(self.catalogue))

    def _narrowed(self, seen: SeenItems) -> SeenItems:
        """Return the interactions with items that the scorer knows."""
        rows, items = seen.rows(np.arange(seen.num_users))
        warm = items < len(self.item_ids)
        return SeenItems.from_pairs(rows[warm], items[warm], seen.num_users, len(self.item_ids))

    # By raw id.

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
        everyone = self.user_ids.ids if users is None else _as_list(users, "users")
        indices = np.arange(len(everyone)) if users is None else self.user_ids.index_of(everyone)
        if (indices < 0).any() and fallback != "popularity":
            raise _unknown_ids(self.user_ids, [everyone[row] for row in np.flatnonzero(indices < 0)], "user")
        lists = self.rank(torch.from_numpy(indices), options, seen=self.fitted if mask == "train" else None)
        names = self.user_ids.take(indices) if (indices >= 0).all() else _names_of(self.user_ids, everyone)
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
        rows, items, unknown = _known_entries(self.catalogue if extend else self.item_ids, histories)
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
        index = int(_known_indices(self.catalogue, [item], "item")[0])
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
            asked["user"] = int(_known_indices(self.user_ids, [user], "user")[0])
        if history is not None:
            _, asked["history"], unknown = _known_entries(self.item_ids, {None: history})
            if not len(asked["history"]):
                raise _unknown_ids(self.item_ids, unknown.get(None, []), "item in the history")
        index = int(_known_indices(self.catalogue, [item], "item")[0])
        found = self.explain_index(index, **asked)
        named = pa.array([index, *found.items], pa.int64())
        ids = self.item_ids.ids.take(named).to_pylist()
        titles = [None] * len(ids) if self.titles is None else self.titles.take(named).to_pylist()
        reasons = tuple(map(Reason, ids[1:], titles[1:], found.contributions))
        parts = found.user_contribution, found.global_contribution, found.members
        return Explanation(user, item, titles[0], found.score, reasons, *parts)

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
        wanted = _as_list(raw_ids, label)
        indices = self.catalogue.index_of(wanted)
        known = indices[indices >= 0]
        if len(indices) and not len(known):
            raise _unknown_ids(self.item_ids, wanted, f"item in {label}")
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


class _Similarities(ScoreMatrix):
    """One row: how similar each item is to some item."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @property
    def num_items(self) -> int:
        return len(self.values)

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        del users, out
        return self.values[None].clone()


class _Rows(ScoreMatrix):
    """The scores of some users, as rows in their order."""

    def __init__(self, scorer: Scorer, users: Tensor) -> None:
        self.scorer, self.users = scorer, users

    @property
    def num_items(self) -> int:
        return self.scorer.num_items

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        return self.scorer.scores(self.users[users], out)


def _warm(options: RankingOptions) -> RankingOptions:
    return replace(options, include_cold=False)


FALLBACKS = ("popularity", "none")
_ByUser = tuple[NDArray[np.int64], NDArray[np.int64]]


def _by_user(log: Interactions) -> _ByUser:
    """Return the rows of a log grouped by user, otherwise in their order, and where each user's start."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(log.users, minlength=log.num_users))])
    return np.argsort(log.users, kind="stable"), starts


def _rows_of(grouped: _ByUser, user: int) -> NDArray[np.int64]:
    order, starts = grouped
    return order[starts[user] : starts[user + 1]]


def _names_of(ids: IdMap, raw_ids: Sequence[Any]) -> pa.Array:
    """Return raw ids, unknown ones among them, as an array of the type that the known ones have; else as strings."""
    try:
        return pa.array(raw_ids, ids.ids.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(list(map(str, raw_ids)))


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
