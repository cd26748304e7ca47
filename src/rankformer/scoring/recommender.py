"""`Recommender`: asks in the caller's ids, answers in the caller's ids."""

from collections.abc import Mapping, Sequence
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
from rankformer.errors import ConfigError, DataError, NotSupportedError
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.explanation import Explanation, Reason
from rankformer.scoring.fold_in import FoldIn, Histories
from rankformer.scoring.history_scorer import FoldInScorer, HistoryScorer
from rankformer.scoring.item_scorer import ItemScorer
from rankformer.scoring.raw_ids import as_list, id_column, known_entries, known_indices, unknown_ids
from rankformer.scoring.recommendations import Recommendations
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import Scorer, top_k


@dataclass(frozen=True, eq=False)
class Recommender:
    """A scorer together with the ids, the history and the titles needed to answer people.

    Attributes:
        scorer: scores of all items for a batch of user indices; `Embeddings`, `ItemScorer` and `AspectScorer` do.
        user_ids: raw ids of the users the scorer knows, position = index.
        item_ids: raw ids of the items, position = index.
        history: what each user has touched, over these same ids; such items are left out of the lists.
        item_titles: a text per item index, or None to use the titles of the history, if it has any.
        fold_in: how to embed a user from a history, None where the method has no such rule or needs none.
    """

    scorer: Scorer
    user_ids: IdMap
    item_ids: IdMap
    history: Interactions
    item_titles: pa.Array | None = None
    fold_in: FoldIn | None = None

    def __post_init__(self) -> None:
        if self.scorer.num_items != len(self.item_ids):
            raise DataError(f"the scorer knows {self.scorer.num_items} items where there are {len(self.item_ids)} ids")
        num_users = getattr(self.scorer, "num_users", len(self.user_ids))
        if num_users != len(self.user_ids):
            raise DataError(f"the scorer knows {num_users} users where there are {len(self.user_ids)} ids")
        if self.history.user_ids != self.user_ids or self.history.item_ids != self.item_ids:
            raise DataError(f"{self.history.name} numbers its ids differently from the model; pass the training part")
        if self.item_titles is not None and len(self.item_titles) != len(self.item_ids):
            raise DataError(f"{len(self.item_titles)} titles for {len(self.item_ids)} items; they must match")

    @cached_property
    def seen(self) -> SeenItems:
        """The distinct pairs of the history, built once."""
        return SeenItems.of(self.history)

    @property
    def titles(self) -> pa.Array | None:
        """A text per item index where any are known."""
        return self.item_titles if self.item_titles is not None else self.history.item_titles

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
            allow: raw item ids; when given, nothing else is returned. Ids the model does not know are passed over,
                but a list in which it knows none is refused.
            block: raw item ids never to be returned; unknown ids as for `allow`.

        Raises:
            UnknownIdError: a user is unknown, or an item list holds no known item.
            ConfigError: k is below 1.
        """
        _check_k(k)
        indices = np.arange(len(self.user_ids)) if users is None else known_indices(self.user_ids, users, "user")
        lists = top_k(
            self.scorer,
            torch.from_numpy(indices),
            self._length(k),
            seen=None if include_seen else self.seen,
            allow=self._item_filter(allow, "allow"),
            block=self._item_filter(block, "block"),
        )
        asked_for = self.user_ids.take(indices)
        return Recommendations.from_lists(("user_id", "item_id"), asked_for, lists, self.item_ids, self.titles)

    def recommend_histories(
        self,
        histories: Mapping[Any, Sequence[Any]],
        k: int = 10,
        *,
        include_seen: bool = False,
        allow: Sequence[Any] | None = None,
        block: Sequence[Any] | None = None,
    ) -> Recommendations:
        """Return up to k items for each user who is only a history, all of them embedded in one pass.

        Whoever has no item that the model knows gets the most popular ones; the result's `fallbacks` says who, its
        `unknown_items` what was passed over.

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
        _check_k(k)
        by_history = self._by_history()
        names = list(histories)
        rows, items, unknown = known_entries(self.item_ids, histories)
        scorer = by_history.for_histories(Histories.of(rows, items, len(names)))
        allowed, blocked = self._item_filter(allow, "allow"), self._item_filter(block, "block")
        everyone = torch.arange(len(names))
        seen = None if include_seen else SeenItems.from_pairs(rows, items, len(names), len(self.item_ids))
        lists = top_k(scorer, everyone, self._length(k), seen=seen, allow=allowed, block=blocked)
        empty = np.setdiff1d(np.arange(len(names)), rows)
        if len(empty):
            anyone = torch.zeros(1, dtype=torch.int64)
            popular = top_k(self._popularity, anyone, self._length(k), allow=allowed, block=blocked)
            lists.items[empty], lists.scores[empty] = popular.items, popular.scores.to(lists.scores.dtype)
        return replace(
            Recommendations.from_lists(("user_id", "item_id"), id_column(names), lists, self.item_ids, self.titles),
            unknown_items=unknown,
            fallbacks=[names[row] for row in empty],
        )

    def explain(self, user: Any, item: Any) -> Explanation:
        """Return the score of a training user for an item as an exact sum over the user's history.

        Raises:
            NotSupportedError: the method has no such structure.
            UnknownIdError: the user or the item is unknown.
        """
        self._explaining()
        row = int(known_indices(self.user_ids, [user], "user")[0])
        history = self.history.items[self.history.users == row]
        return self._explanation(user, item, history, row)

    def explain_history(self, history: Sequence[Any], item: Any) -> Explanation:
        """Return the same for a user who is only a history; items the model does not know are passed over.

        Raises:
            NotSupportedError: the method has no such structure.
            UnknownIdError: the item is unknown, or every item of the history is.
        """
        self._explaining()
        _, known, unknown = known_entries(self.item_ids, {None: history})
        if not len(known):
            raise unknown_ids(self.item_ids, unknown.get(None, []), "item in the history")
        return self._explanation(None, item, known, None)

    def _explanation(self, user: Any, item: Any, history: NDArray[Any], row: int | None) -> Explanation:
        """Return the explanation of a score; `row` is the training user's index, None for a folded-in user."""
        index = int(known_indices(self.item_ids, [item], "item")[0])
        shares = self._by_history().shares(Histories.of(np.zeros(len(history)), history, 1), index, row)
        items, place = np.unique(history, return_inverse=True)
        sums = np.bincount(place, shares.entries, minlength=len(items))
        order = np.argsort(-sums, kind="stable")
        ids, titles = self.item_ids.take(items[order]).to_pylist(), self._titles_of(items[order])
        reasons = tuple(Reason(*reason) for reason in zip(ids, titles, sums[order].tolist(), strict=True))
        title = self._titles_of(np.array([index]))[0]
        return Explanation(user, item, title, shares.score, reasons, shares.own, shares.crowd)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """Return the k items most like a given one, itself left out.

        For vectors that is how nearly they point the same way, by cosine; a zero vector points nowhere, so that such an
        item is similar to nothing and nothing to it. For item weights it is what the others say for it, if anything.

        Raises:
            UnknownIdError: the item is unknown.
            ConfigError: k is below 1.
            NotSupportedError: the scorer has neither item vectors nor item weights.
        """
        _check_k(k)
        index = int(known_indices(self.item_ids, [item], "item")[0])
        likeness, left_out = self._likeness(index)
        left_out[index] = True
        lists = top_k(
            likeness,
            torch.zeros(1, dtype=torch.int64),
            min(k, max(1, len(self.item_ids) - 1)),
            block=left_out.nonzero().squeeze(1),
        )
        asked_for = self.item_ids.take(np.array([index]))
        return Recommendations.from_lists(("item_id", "similar_item_id"), asked_for, lists, self.item_ids, self.titles)

    @property
    def embeddings(self) -> Embeddings:
        """The vectors, where the scorer is made of vectors.

        Raises:
            NotSupportedError: it is not.
        """
        if not isinstance(self.scorer, Embeddings):
            raise NotSupportedError(f"{type(self.scorer).__name__} scores without vectors; this needs embeddings")
        return self.scorer

    @property
    def can_fold_in(self) -> bool:
        """Whether users outside the training data can be answered."""
        return isinstance(self.scorer, ItemScorer | AspectScorer) or self.fold_in is not None

    @property
    def can_explain(self) -> bool:
        """Whether scores can be split over the history."""
        return self.can_fold_in and self._by_history().explains

    @property
    def can_find_similar(self) -> bool:
        """Whether items can be compared."""
        return isinstance(self.scorer, Embeddings | ItemScorer | AspectScorer)

    def _by_history(self) -> HistoryScorer:
        if isinstance(self.scorer, ItemScorer | AspectScorer):
            return self.scorer
        if self.fold_in is None:
            raise NotSupportedError(
                "this model has no rule for a user outside its training data: it learns a vector for each user by "
                "itself; train a method that builds users from items, such as rankformer or lightgcn"
            )
        return FoldInScorer(self.embeddings, self.fold_in)

    def _explaining(self) -> None:
        if not self.can_explain:
            raise NotSupportedError(
                "this model's scores are no sum over a user's history, so there are no reasons to give; "
                "train a method that builds users from items, such as rankformer or lightgcn"
            )

    @cached_property
    def _popularity(self) -> Embeddings:
        """The number of lines of each item in the history, as what every user scores."""
        counts = np.bincount(self.history.items, minlength=len(self.item_ids)).astype(np.float32)
        return Embeddings(torch.ones(1, 1), torch.from_numpy(counts)[:, None])

    def _likeness(self, index: int) -> tuple[Embeddings, Tensor]:
        """Return the one user who scores items by their likeness to one, and (m,) which can be like nothing."""
        if isinstance(self.scorer, ItemScorer):
            weights = torch.from_numpy(self.scorer.matrix.column(index)).float()[:, None]
            return Embeddings(torch.ones(1, 1), weights), weights[:, 0] == 0
        units = self._unit_items
        nothing = (units == 0).all(dim=1)
        return Embeddings(units[index : index + 1], units), nothing | nothing[index]

    @cached_property
    def _unit_items(self) -> Tensor:
        """The item vectors at length 1, zero vectors left zero, (m, d)."""
        items = self.scorer.item_vectors if isinstance(self.scorer, AspectScorer) else self.embeddings.items
        return torch.nn.functional.normalize(items.detach(), dim=1)

    def _length(self, k: int) -> int:
        """Return the length that lists of k can have here."""
        return min(k, max(1, len(self.item_ids)))

    def _titles_of(self, indices: NDArray[Any]) -> list[str | None]:
        """Return the title of each item index, None where there is none."""
        titles: list[str | None] = (
            [None] * len(indices) if self.titles is None else self.titles.take(pa.array(indices)).to_pylist()
        )
        return titles

    def _item_filter(self, raw_ids: Sequence[Any] | None, label: str) -> Tensor | None:
        if raw_ids is None:
            return None
        indices = self.item_ids.index_of(as_list(raw_ids, label))
        known = indices[indices >= 0]
        if len(indices) and not len(known):
            raise unknown_ids(self.item_ids, list(raw_ids), f"item in {label}")
        return torch.from_numpy(known)


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(f"k={k}: a list needs at least one place; ask for k >= 1")
