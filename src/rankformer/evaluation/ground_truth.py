"""The test part in the form the evaluator asks of it: who counts, how many items each has, is this a hit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.seen_items import SeenItems


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The test interactions of every user that can be given a list.

    Attributes:
        users: (U,) int64 indices, ascending, of the users with at least one test interaction.
        counts: (U,) their test interactions, duplicates counted.
        distinct: (U,) their distinct test items.
        pairs: the distinct test interactions.
        keys: every counted interaction as one number, ascending: equal keys mean equal test parts, in any order.
        users_unknown: users with a test interaction that the model cannot give a list; they count nowhere else.
        interactions_unknown: interactions of counted users on items the model does not know; they are never hit, yet
            in every denominator.
    """

    users: NDArray[np.int64]
    counts: NDArray[np.int64]
    distinct: NDArray[np.int64]
    pairs: SeenItems
    keys: NDArray[np.int64]
    users_unknown: int = 0
    interactions_unknown: int = 0

    @classmethod
    def of(cls, test: Interactions, user_ids: IdMap, item_ids: IdMap) -> "GroundTruth":
        """Return the truth of a test part in the numbering of the given maps, translated by raw id if it differs.

        Raises:
            DataError: the part is empty, or not one of its users is in the map.
        """
        if not len(test):
            raise DataError(f"{test.name} has no interactions; evaluation needs at least one test interaction")
        users, items = translate(test, user_ids, item_ids)
        known = users >= 0
        if not known.any():
            raise DataError(f"not one user of {test.name} is known to the model; are both from one data set?")
        users_unknown = len(np.unique(test.users[~known]))
        interactions_unknown = int((items[known] < 0).sum())
        # An unknown item keeps a number of its own past the catalogue, where no list can reach it.
        items = np.where(items < 0, len(item_ids) + test.items, items)
        users, items = users[known], items[known]
        width = len(item_ids) + test.num_items
        pairs = SeenItems.from_pairs(users, items, len(user_ids), width)
        counts = np.bincount(users, minlength=len(user_ids))
        counted = np.flatnonzero(counts)
        keys = np.sort(users * width + items)
        return cls(counted, counts[counted], pairs.counts[counted], pairs, keys, users_unknown, interactions_unknown)

    @property
    def num_interactions(self) -> int:
        """How many test interactions count."""
        return len(self.keys)

    def hits(self, lists: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which items of `lists` (U, K), one row per user of `users`, are a test item of that user."""
        return self.pairs.contains(self.users[:, None], lists)


def translate(part: Interactions, user_ids: IdMap, item_ids: IdMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the interactions of a log as int64 indices into the given maps, -1 for an id that is not in them."""
    return _renumber(part.users, part.user_ids, user_ids), _renumber(part.items, part.item_ids, item_ids)


def _renumber(indices: NDArray[Any], old: IdMap, new: IdMap) -> NDArray[np.int64]:
    if old is new or old == new:
        return indices.astype(np.int64)
    renumbered: NDArray[np.int64] = new.index_of(old.ids.to_pylist())[indices]
    return renumbered
