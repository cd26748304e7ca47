"""`ItemScorer`: users scored by their histories alone, y_u = x_u W.

A user is a row x_u over the items; nothing is learned about users. So a new user is scored like a training user, and a
score is a sum over the history: item j of it contributes x_uj W[j, i], and nothing else contributes.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.graph.bipartite import interaction_matrix
from rankformer.scoring.base import Contributions, Scorer
from rankformer.scoring.dual_weights import DualWeights
from rankformer.scoring.graph_filter import GraphFilter
from rankformer.scoring.histories import Histories
from rankformer.scoring.item_matrix import DenseWeights, ItemMatrix, SparseWeights

_LEAST_ROWS = 32  # for a thread to be worth its beginning
_KINDS: tuple[type[ItemMatrix], ...] = (SparseWeights, DenseWeights, GraphFilter, DualWeights)
ITEM_WEIGHTS = {kind.kind: kind for kind in _KINDS}


@dataclass(frozen=True, eq=False)
class ItemScorer(Scorer):
    """Histories and the item weights that score them."""

    can_fold_in = can_explain = can_compare_items = True  # a user is a history, a score a sum over it
    matrix: ItemMatrix  # W
    histories: csr_array  # (n, m) X, a row per user
    count_duplicates: bool = False  # whether an item's entries add up in x_u, or count once (the one of largest weight)

    @classmethod
    def of(cls, matrix: ItemMatrix, history: Interactions, count_duplicates: bool = False) -> "ItemScorer":
        """Return the scorer of the users of a log."""
        shape = (history.num_users, history.num_items)
        x = interaction_matrix(history.users, history.items, shape, count_duplicates, history.weights)
        return cls(matrix, x, count_duplicates)

    @property
    def num_users(self) -> int:
        return int(self.histories.shape[0])

    @property
    def num_items(self) -> int:
        return self.matrix.num_items

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        del out
        x, threads = self.histories[users.cpu().numpy()], torch.get_num_threads()
        if threads == 1 or len(users) < _LEAST_ROWS * threads:
            return torch.from_numpy(self.matrix.product(x))
        scores = np.empty((len(users), self.num_items), np.float32)
        cuts = pairwise(np.linspace(0, len(users), threads + 1, dtype=int))

        def fill(rows: slice) -> None:
            scores[rows] = self.matrix.product(x[rows])

        with ThreadPoolExecutor(threads) as pool:  # a sparse product takes one
            list(pool.map(fill, starmap(slice, cuts)))
        return torch.from_numpy(scores)

    def for_histories(self, histories: Histories) -> "ItemScorer":
        shape, weights = (histories.num_users, self.num_items), histories.weights
        entries = histories.users.numpy(), histories.items.numpy()
        rows = interaction_matrix(*entries, shape, self.count_duplicates, None if weights is None else weights.numpy())
        return ItemScorer(self.matrix, rows, self.count_duplicates)

    def similarities(self, item: int) -> Tensor:
        weights = torch.from_numpy(self.matrix.column(item)).float()
        return weights.masked_fill_(weights == 0, float("-inf"))

    def contributions(self, history: Histories, item: int, user: int | None) -> Contributions:
        """Return x_uj W[j, i] for each entry j; the entries of an item that occurs more than once divide it evenly."""
        items = history.items.numpy()
        entries = self.matrix.column(item)[items]
        weighted = user is not None and history.weights is not None  # else a training user is like anyone else
        if weighted:
            entries = entries * self.histories[[user]].toarray()[0, items]
        if weighted or not self.count_duplicates:
            entries = entries / np.bincount(items, minlength=self.num_items)[items]
        return Contributions(float(entries.sum()), entries, 0.0, 0.0)

    def cpu(self) -> "ItemScorer":
        return self  # it is always in main memory

    def tensors(self) -> dict[str, Tensor]:
        return self.matrix.tensors()  # the histories are the run's own

    def metadata(self) -> dict[str, Any]:
        return {"kind": self.matrix.kind, "count_duplicates": self.count_duplicates, **self.matrix.metadata()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], history: Interactions) -> "ItemScorer":
        if metadata.get("kind") not in ITEM_WEIGHTS or not isinstance(metadata.get("count_duplicates"), bool):
            raise DataError(
                f"its scorer is none of embeddings, {', '.join(ITEM_WEIGHTS)}, or does not say how it counts"
            )
        shape, count_duplicates = (history.num_users, history.num_items), metadata["count_duplicates"]
        histories = interaction_matrix(history.users, history.items, shape, count_duplicates, history.weights)
        return cls(ITEM_WEIGHTS[metadata["kind"]].restore(tensors, metadata, histories), histories, count_duplicates)
