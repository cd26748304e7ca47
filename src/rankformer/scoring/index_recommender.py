"""`IndexRecommender`: a scorer with ids, history and items, which answers in indices.

What evaluation, service and commands share: `rank`, `rank_histories`, `rank_similar` and `explain_index`.
`rankformer.scoring.recommender` has the same in the caller's own ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.errors import DataError, NotSupportedError, UnknownIdError
from rankformer.graph.collectives import Ranks
from rankformer.scoring.base import GivenScores, ScoreMatrix, Scorer, SomeRows
from rankformer.scoring.cold_items import ColdItems, WithColdItems, learn_cold_items
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation, Reason
from rankformer.scoring.histories import Histories, RowsByUser
from rankformer.scoring.item_rules import ItemRules
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import TopK, share_of, top_k


@dataclass(frozen=True, eq=False)
class IndexRecommender:
    """A scorer together with the ids, the history and the titles needed to answer people."""

    scorer: Scorer  # scores of all items for user indices
    user_ids: IdMap  # raw ids of the users the scorer knows, position = index
    item_ids: IdMap  # raw ids of the items, position = index
    history: Interactions  # what the scorer was fitted on, over these same ids
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
        if not self.catalogue.ids.slice(0, len(self.item_ids)).equals(self.item_ids.ids):
            raise DataError("the items are not in the order of the model's; use with_items")
        if self.cold_items is not None:
            shape = len(self.cold_items.items), len(self.item_ids)
            in_order = np.diff(self.cold_items.items, prepend=-1, append=len(self.catalogue)) > 0
            if self.cold_items.weights.shape != shape or not in_order.all():
                raise DataError(f"cold items must be distinct items, in order, with weights of shape {shape}")

    def with_items(self, items: Items) -> Self:
        """Return the same recommender with other titles and attributes; those without interactions become cold items.

        Raises:
            DataError: the item ids are of another type than the model's.
        """
        aligned = items.align(self.item_ids, self.history.item_titles)
        return replace(self, items=aligned, cold_items=learn_cold_items(aligned, self.scorer, self.fitted))

    def with_sets(self, sets: Mapping[str, Sequence[Any]]) -> Self:
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
        return self.history.item_titles if self.items is None else self.items.titles

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

    @cached_property
    def filter_columns(self) -> dict[str, pa.Array]:
        """What expressions may name: the attributes, and item_id, title and cold where no attribute has that name."""
        columns = {"cold": pa.array(self.is_cold)}
        if pa.types.is_string(self.catalogue.ids.type) or pa.types.is_integer(self.catalogue.ids.type):
            columns["item_id"] = self.catalogue.ids
        if self.titles is not None:
            columns["title"] = self.titles.cast(pa.string())
        return {**columns, **({} if self.items is None else self.items.columns)}

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
                popular = self._top(self._popularity_of(len(self.user_ids)), known[fallback], options.warm, own)
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
        scorer: ScoreMatrix = SomeRows(self.scorer, indices.clamp(min=0))
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
            popular = self._top(self._popularity_of(count), everyone[empty], options.warm, narrow)
            lists.items[empty], lists.scores[empty] = popular.items, popular.scores.to(lists.scores.dtype)
        return lists, empty.tolist()

    def _with_history(
        self, histories: Histories, users: Sequence[int] | None, log: Interactions, by_user: RowsByUser
    ) -> Histories:
        """Return histories after the interactions of a log that their users have, as far as the scorer knows items."""
        warm = histories.items < len(self.item_ids)
        rows, items = histories.users[warm].numpy(), histories.items[warm].numpy()
        added = np.ones(len(rows), np.float32) if histories.weights is None else histories.weights[warm].numpy()
        known = [by_user.rows(user) if user >= 0 else np.zeros(0, np.int64) for user in users or ()]
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
        similar = GivenScores(self.scorer.similarities(item)[None])
        itself = SeenItems.from_pairs(np.zeros(1), np.array([item]), 1, len(self.item_ids))
        length = min(options.k, max(1, len(self.item_ids) - 1))
        return self._top(similar, torch.zeros(1, dtype=torch.int64), replace(options.warm, k=length), itself)

    def explain_index(
        self, item: int, *, user: int | None = None, history: Sequence[int] | NDArray[Any] | None = None
    ) -> Explanation:
        """Return the score of an item as an exact sum over a history, by indices in place of ids.

        The history is that of a training user, or of a new one; with both, it follows the known interactions of the
        user, as in `rank_histories`.
        """
        self._check_warm(item)
        if user is not None and history is None and self.cold[user]:
            name = self.user_ids.ids[user].as_py()
            raise UnknownIdError(
                f"user {name!r} has no interaction the model was fitted on and gets the most popular items; "
                "there is nothing to explain"
            )
        given = np.asarray([] if history is None else history, dtype=np.int64)
        added, users = Histories.of(np.zeros(len(given)), given, 1), None if user is None else [user]
        whole = self._with_history(added, users, self.history, self._fitted_by_user)
        parts = self.scorer.contributions(whole, item, user if history is None else None)
        items, position = np.unique(whole.items.numpy(), return_inverse=True)
        sums = np.bincount(position, parts.items, minlength=len(items))
        order = np.argsort(-sums, kind="stable")
        reasons = tuple(map(Reason, items[order].tolist(), repeat(None), sums[order].tolist()))
        return Explanation(user, item, None, parts.score, reasons, parts.user, parts.overall, parts.members)

    def _check_warm(self, item: int) -> None:
        if item >= len(self.item_ids) or self.is_cold[item]:
            name = self.catalogue.ids[item].as_py()
            raise NotSupportedError(f"item {name!r} has no interactions: lists score it by its attributes, and no more")

    def history_of(self, user: int) -> NDArray[np.int64]:
        """Return the item indices of a user's known interactions, in the order of the log."""
        return self.known.items[self._known_by_user.rows(user)].astype(np.int64)

    @cached_property
    def _known_by_user(self) -> RowsByUser:
        return RowsByUser.of(self.known)

    @cached_property
    def _fitted_by_user(self) -> RowsByUser:
        return self._known_by_user if self.known is self.history else RowsByUser.of(self.history)

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
        rules = self._rules.of(options, size)
        return top_k(scorer, users, length, seen=seen, allow=allow, block=block, rules=rules)

    @cached_property
    def _rules(self) -> ItemRules:
        return ItemRules(self.filter_columns)

    def share_of(self, ranks: Ranks) -> slice:
        """Return the users whose lists a rank makes where several share them: see `top_k.share_of`."""
        cold = self.cold_items
        scorer = self.scorer if cold is None else WithColdItems(self.scorer, cold, len(self.catalogue))
        return share_of(scorer, len(self.user_ids), ranks)

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
