"""`Histories`: what a batch of users has interacted with, by item index."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.interactions import Interactions

_ENTRIES_AT_ONCE = 1 << 16  # bounds the (entries, d) arrays that a batch of histories needs


class Histories(NamedTuple):
    """The items of a batch of users; an item that is listed twice weighs twice.

    Each entry may have a weight, with which it counts as that many.
    """

    users: Tensor  # (h,) row of each entry, ascending
    items: Tensor  # (h,) its item index
    num_users: int  # b; some may have no entry
    weights: Tensor | None = None  # (h,) weight of each entry; None for 1 each

    @classmethod
    def of(
        cls, users: NDArray[Any], items: NDArray[Any], num_users: int, weights: NDArray[Any] | None = None
    ) -> "Histories":
        """Return the histories of (row, item) entries, in any order."""
        order = np.argsort(users, kind="stable")
        rows, columns = (torch.from_numpy(values[order].astype(np.int64)) for values in (users, items))
        return cls(rows, columns, num_users, None if weights is None else torch.from_numpy(weights[order]))

    @classmethod
    def from_lists(cls, histories: Sequence[Sequence[int]]) -> "Histories":
        """Return the histories given as one list of item indices per user."""
        rows = np.repeat(np.arange(len(histories)), [len(history) for history in histories])
        items = np.array([item for history in histories for item in history], dtype=np.int64)
        return cls.of(rows, items, len(histories))

    @property
    def counts(self) -> Tensor:
        """(b,) entries of each user, int64."""
        return torch.bincount(self.users, minlength=self.num_users)

    @property
    def sizes(self) -> Tensor:
        """(b,) entries of each user or the sum of their weights, float64."""
        return torch.bincount(self.users, self.weights, minlength=self.num_users).double()

    def times_weights(self, values: Tensor) -> Tensor:
        """Return values of the entries, (h,) or (h, d), times the weights."""
        if self.weights is None:
            return values
        return values * self.weights.to(values.dtype).view(-1, *[1] * (values.ndim - 1))

    def pieces(self) -> Iterator["Histories"]:
        """Yield the same users in order, in batches of bounded size; a user is never split."""
        ends = torch.cumsum(self.counts, 0)
        first_user = first_entry = 0
        while first_user < self.num_users:
            fitting = int(torch.searchsorted(ends, first_entry + _ENTRIES_AT_ONCE, right=True))
            last_user = max(first_user + 1, min(fitting, first_user + _ENTRIES_AT_ONCE))
            last_entry = int(ends[last_user - 1])
            entries = slice(first_entry, last_entry)
            weights = None if self.weights is None else self.weights[entries]
            yield Histories(self.users[entries] - first_user, self.items[entries], last_user - first_user, weights)
            first_user, first_entry = last_user, last_entry


class RowsByUser(NamedTuple):
    """The rows of a log grouped by user, otherwise in their order."""

    order: NDArray[np.int64]  # (E,) row numbers
    starts: NDArray[np.int64]  # (n + 1,) where each user's start

    @classmethod
    def of(cls, log: Interactions) -> "RowsByUser":
        """Return the rows of a log."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(log.users, minlength=log.num_users))])
        return cls(np.argsort(log.users, kind="stable"), starts)

    def rows(self, user: int) -> NDArray[np.int64]:
        """Return the rows of a user."""
        return self.order[self.starts[user] : self.starts[user + 1]]
