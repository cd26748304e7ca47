"""`ItemScorer`: users scored by their histories alone, y_u = x_u W.

A user is a row x_u over the items; nothing is learned about users. So a user outside the training data is answered as
one inside it, and a score is a sum over the history: item j of it brings x_uj W[j, i], and nobody else anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.fold_in import Histories
from rankformer.scoring.graph_filter import GraphFilter
from rankformer.scoring.history_scorer import Shares
from rankformer.scoring.item_matrix import DenseWeights, ItemMatrix, SparseWeights, pair_matrix

_KINDS: dict[str, type[ItemMatrix]] = {kind.kind: kind for kind in (SparseWeights, DenseWeights, GraphFilter)}


@dataclass(frozen=True, eq=False)
class ItemScorer:
    """Histories and the item weights that score them.

    Attributes:
        matrix: W.
        histories: (n, m) X, a row per user.
        count_repeats: whether an item that is listed c times weighs c in x_u, or once.
    """

    explains: ClassVar[bool] = True
    matrix: ItemMatrix
    histories: csr_array
    count_repeats: bool = False

    @classmethod
    def of(cls, matrix: ItemMatrix, history: Interactions, count_repeats: bool = False) -> "ItemScorer":
        """Return the scorer of the users of a log."""
        shape = (history.num_users, history.num_items)
        return cls(matrix, pair_matrix(history.users, history.items, shape, count_repeats), count_repeats)

    @property
    def num_users(self) -> int:
        """N."""
        return int(self.histories.shape[0])

    @property
    def num_items(self) -> int:
        """M."""
        return self.matrix.num_items

    def scores(self, users: Tensor) -> Tensor:
        """Return the scores of all items for user indices, a fresh (b, m) float32 matrix."""
        return torch.from_numpy(self.matrix.product(self.histories[users.cpu().numpy()]))

    def for_histories(self, histories: Histories) -> "ItemScorer":
        """Return the same weights for other users."""
        shape = (histories.num_users, self.num_items)
        rows = pair_matrix(histories.users.numpy(), histories.items.numpy(), shape, self.count_repeats)
        return ItemScorer(self.matrix, rows, self.count_repeats)

    def shares(self, history: Histories, item: int, user: int | None) -> Shares:
        """Return W[j, i] for each entry j; where repeats count once, the entries of an item share it evenly."""
        del user  # a training user is its history, like anyone else
        items = history.items.numpy()
        entries = self.matrix.column(item)[items]
        if not self.count_repeats:
            entries = entries / np.bincount(items, minlength=self.num_items)[items]
        return Shares(float(entries.sum()), entries, 0.0, 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the weights, by name; the histories are the run's own."""
        return self.matrix.tensors()

    def numbers(self) -> dict[str, Any]:
        """Return the kind of the weights and every number, as JSON can hold them."""
        return {"kind": self.matrix.kind, "count_repeats": self.count_repeats, **self.matrix.numbers()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], history: Interactions) -> "ItemScorer":
        """Return the scorer that `tensors` and `numbers` described, over the history it was made from.

        Raises:
            DataError: they do not fit together, or hold an index or a number that cannot be.
        """
        if numbers.get("kind") not in _KINDS or not isinstance(numbers.get("count_repeats"), bool):
            raise DataError(f"its scorer is none of embeddings, {', '.join(_KINDS)}, or does not say how it counts")
        shape, count_repeats = (history.num_users, history.num_items), bool(numbers["count_repeats"])
        pairs = pair_matrix(history.users, history.items, shape, count_repeats)
        return cls(_KINDS[numbers["kind"]].restore(tensors, numbers, pairs), pairs, count_repeats)
