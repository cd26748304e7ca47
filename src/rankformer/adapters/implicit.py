"""implicit: `RankformerRecommender`, with the calls and results of its models.

Ids are row and column numbers of the matrix. Lists that run short end with id -1 and the lowest float32 as score, as
those of implicit's item-item models do. `save` writes a run folder.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from implicit.recommender_base import RecommenderBase
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch.nn.functional import normalize

from rankformer.adapters.common import NO_SCORE, fitted_model, log_of, new_model, similar_to
from rankformer.models.base import Model
from rankformer.models.registry import load_model
from rankformer.scoring.histories import Histories
from rankformer.scoring.options import RankingOptions
from rankformer.scoring.seen_items import SeenItems

Answer = tuple[NDArray[np.int32], NDArray[np.float32]]  # ids and scores: (N,) for one id asked about, (b, N) for b


class RankformerRecommender(RecommenderBase):
    """A model of this package with the interface of implicit.

    Args:
        model: name of a model, or an instance; one that was fitted on numbers as ids recommends without another fit.
        **settings: of the model.
    """

    def __init__(self, model: str | Model = "blend", **settings: Any) -> None:
        self.source, self.settings = model, settings
        self.model = fitted_model(model, settings) or new_model(model, settings)

    def fit(self, user_items: Any, show_progress: bool = True, callback: Callable[..., Any] | None = None) -> None:
        """Fit the model to a matrix of users by items whose values are weights; `callback` gets each event."""
        log = log_of(user_items.tocsr(), range(user_items.shape[0]), range(user_items.shape[1]))
        model = new_model(self.source, self.settings)
        self.model = model.fit(log, verbose=None if show_progress else False, on_event=callback)

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
    ) -> Answer:
        """Return the best N items of one user or several; `recalculate_user` scores them by `user_items` alone."""
        users = np.atleast_1d(userid).astype(np.int64)
        recommender = self.model.recommender
        sizes = len(recommender.user_ids), len(recommender.item_ids)
        if not recalculate_user and ((users < 0) | (users >= sizes[0])).any():
            raise IndexError(f"userid {userid} is not in the model, which has {sizes[0]} users")
        options = self._options(N, items, filter_items, include_seen=not filter_already_liked_items)
        liked = csr_matrix((len(users), sizes[1])).tocoo()
        if filter_already_liked_items or recalculate_user:
            if not isinstance(user_items, csr_matrix):
                raise ValueError("user_items needs to be a CSR sparse matrix")
            if user_items.shape[0] != len(users):
                raise ValueError("user_items must contain 1 row for every user in userids")
            liked = user_items.tocoo()
        if recalculate_user:
            histories = Histories.of(liked.row, liked.col, len(users), liked.data.astype(np.float32))
            lists, _ = recommender.rank_histories(histories, options)
        else:
            seen = SeenItems.from_pairs(users[liked.row], liked.col, *sizes)
            lists = recommender.rank(users.tolist(), options, seen=seen)
        found = zip(lists.items.numpy(), lists.scores.float().numpy(), strict=True)
        return _shaped(userid, list(found), N if items is None else min(N, len(items)))

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> Answer:
        """Return the N items most similar to one item or several, itself first."""
        if recalculate_item:
            raise NotImplementedError("recalculate_item is not supported with this model")
        options = self._options(N, items, filter_items)
        return _shaped(itemid, [similar_to(self.model.recommender, int(i), options) for i in np.atleast_1d(itemid)], N)

    def similar_users(self, userid: Any, N: int = 10, filter_users: Any = None, users: Any = None) -> Answer:
        """Return the N users whose embeddings have the largest cosine with one user's or several, themselves first."""
        unit = normalize(self.model.embeddings.users.float(), dim=1)
        scores = (unit[np.atleast_1d(userid)] @ unit.T).numpy()
        closed = np.zeros(len(unit), dtype=bool) if users is None else ~np.isin(np.arange(len(unit)), users)
        closed[[] if filter_users is None else filter_users] = True
        order = np.argsort(np.where(closed, np.inf, -scores), kind="stable")[:, : min(N, int((~closed).sum()))]
        return _shaped(userid, [(ids, row[ids]) for ids, row in zip(order, scores, strict=True)], N)

    def save(self, file: str | PathLike[str]) -> None:
        """Write the fitted model as a run folder."""
        self.model.save(file)

    @classmethod
    def load(cls, fileobj_or_path: str | PathLike[str]) -> "RankformerRecommender":
        """Return the model of a run folder, every byte of it checked."""
        return cls(load_model(fileobj_or_path))

    def _options(self, size: int, items: Any, filter_items: Any, include_seen: bool = True) -> RankingOptions:
        if items is not None and filter_items is not None:
            raise ValueError("Can't set both items and filter_items")
        allow, block = (None if each is None else tuple(int(item) for item in each) for each in (items, filter_items))
        for item in (allow or ()) + (block or ()):
            if not 0 <= item < len(self.model.recommender.item_ids):
                raise IndexError(f"item {item} is not in the model")
        return RankingOptions(size, include_seen, allow, block)


def _shaped(asked: Any, found: list[tuple[Any, Any]], size: int) -> Answer:
    """Return lists of items and scores as arrays of one length, those of the only id asked about in one dimension."""
    ids, scores = np.full((len(found), size), -1, dtype=np.int32), np.full((len(found), size), NO_SCORE, np.float32)
    for row, (items, values) in enumerate(found):
        ids[row, : len(items)] = items
        scores[row, : len(items)] = np.where(items >= 0, values, NO_SCORE)
    return (ids[0], scores[0]) if np.isscalar(asked) else (ids, scores)
