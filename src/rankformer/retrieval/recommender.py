"""`Recommender`: asks in the caller's ids, answers in the caller's ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.embeddings import Embeddings
from rankformer.errors import ConfigError, DataError, UnknownIdError
from rankformer.retrieval.recommendations import Recommendations
from rankformer.retrieval.seen_items import SeenItems
from rankformer.retrieval.top_k import Scorer, top_k


@dataclass(frozen=True, eq=False)
class Recommender:
    """A scorer together with the ids, the history and the titles needed to answer people.

    Attributes:
        scorer: scores of all items for a batch of user indices; `Embeddings` is one.
        user_ids: raw ids of the users the scorer knows, position = index.
        item_ids: raw ids of the items, position = index.
        history: what each user has touched, over these same ids; such items are left out of the lists.
        item_titles: a text per item index, or None to use the titles of the history, if it has any.
    """

    scorer: Scorer
    user_ids: IdMap
    item_ids: IdMap
    history: Interactions
    item_titles: pa.Array | None = None

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
        indices = np.arange(len(self.user_ids)) if users is None else _known(self.user_ids, users, "user")
        lists = top_k(
            self.scorer,
            torch.from_numpy(indices),
            min(k, max(1, len(self.item_ids))),
            seen=None if include_seen else self.seen,
            allow=self._item_filter(allow, "allow"),
            block=self._item_filter(block, "block"),
        )
        asked_for = self.user_ids.take(indices)
        return Recommendations.from_lists(("user_id", "item_id"), asked_for, lists, self.item_ids, self.titles)

    def similar_items(self, item: Any, k: int = 10) -> Recommendations:
        """Return the k items whose vectors point most nearly the same way, by cosine, the item itself left out.

        A zero vector points nowhere: such an item is similar to nothing and nothing is similar to it.

        Raises:
            UnknownIdError: the item is unknown.
            ConfigError: k is below 1, or the scorer has no item vectors.
        """
        _check_k(k)
        index = int(_known(self.item_ids, [item], "item")[0])
        units = self._unit_items
        left_out = (units == 0).all(dim=1)
        nothing = left_out[index].clone()
        left_out[index] = True
        blocked = torch.full_like(left_out, True) if nothing else left_out
        lists = top_k(
            Embeddings(units[index : index + 1], units),
            torch.zeros(1, dtype=torch.int64),
            min(k, max(1, len(self.item_ids) - 1)),
            block=blocked.nonzero().squeeze(1),
        )
        asked_for = self.item_ids.take(np.array([index]))
        return Recommendations.from_lists(("item_id", "similar_item_id"), asked_for, lists, self.item_ids, self.titles)

    @cached_property
    def _unit_items(self) -> Tensor:
        """The item vectors at length 1, zero vectors left zero, (m, d)."""
        if not isinstance(self.scorer, Embeddings):
            raise ConfigError(f"{type(self.scorer).__name__} has no item vectors; similar_items needs embeddings")
        return torch.nn.functional.normalize(self.scorer.items.detach(), dim=1)

    def _item_filter(self, raw_ids: Sequence[Any] | None, label: str) -> Tensor | None:
        if raw_ids is None:
            return None
        indices = self.item_ids.index_of(_as_list(raw_ids, label))
        known = indices[indices >= 0]
        if len(indices) and not len(known):
            raise _unknown(self.item_ids, list(raw_ids), f"item in {label}")
        return torch.from_numpy(known)


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(f"k={k}: a list needs at least one place; ask for k >= 1")


def _known(ids: IdMap, raw_ids: Sequence[Any], kind: str) -> NDArray[np.int64]:
    """Return the index of every raw id, or refuse naming those that are unknown."""
    wanted = _as_list(raw_ids, f"{kind}s")
    indices = ids.index_of(wanted)
    if (indices < 0).any():
        raise _unknown(ids, [wanted[row] for row in np.flatnonzero(indices < 0)], kind)
    return indices


def _as_list(raw_ids: Sequence[Any], label: str) -> list[Any]:
    """Return the ids as a list of plain values; one text is a likely slip, since it would be read letter by letter."""
    if isinstance(raw_ids, str | bytes):
        raise ConfigError(f"{label}={raw_ids!r}: a list of ids is needed; write [{raw_ids!r}]")
    for method in ("to_pylist", "tolist", "to_list"):  # Arrow; numpy and pandas; polars
        if hasattr(raw_ids, method):
            return list(getattr(raw_ids, method)())
    return list(raw_ids)


def _unknown(ids: IdMap, missing: list[Any], kind: str) -> UnknownIdError:
    named = ", ".join(repr(value) for value in missing[:3]) + (", ..." if len(missing) > 3 else "")
    examples = " or ".join(repr(value) for value in ids.ids.slice(0, 2).to_pylist()) or "(there are none)"
    return UnknownIdError(f"unknown {kind}: {named} ({len(missing)} not known to the model); ids look like {examples}")
