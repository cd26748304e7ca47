"""Scores of users who are only histories, and scores taken apart: one contract for vectors and for item weights."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import FoldIn, Histories, embed
from rankformer.scoring.top_k import Scorer


class Shares(NamedTuple):
    """One score taken apart: score = sum of the entries' shares + own + crowd.

    Attributes:
        score: what is taken apart.
        entries: (h,) what each entry of the history brings.
        own: what the user's own learned vector brings.
        crowd: what belongs to nobody in particular.
    """

    score: float
    entries: NDArray[np.float64]
    own: float
    crowd: float


class HistoryScorer(Protocol):
    """How a method answers about histories, whether their users were trained or not."""

    @property
    def explains(self) -> bool:
        """Whether the shares say something of the items they belong to."""

    def for_histories(self, histories: Histories) -> Scorer:
        """Return the scorer whose users are those of the histories, in order."""

    def shares(self, history: Histories, item: int, user: int | None) -> Shares:
        """Return the score of an item taken apart.

        Args:
            history: of one user.
            item: its index.
            user: index of the training user whose history it is, None for one who is only a history.
        """


@dataclass(frozen=True, eq=False)
class FoldInScorer:
    """Users embedded by a rule, scored by inner products with the items.

    Attributes:
        embeddings: of the training users and the items.
        rule: how a history becomes a vector.
    """

    embeddings: Embeddings
    rule: FoldIn

    @property
    def explains(self) -> bool:
        """Whether the rule's parts say something of the items they belong to."""
        return self.rule.explains

    def for_histories(self, histories: Histories) -> Embeddings:
        """Return the vectors of the histories beside the items'."""
        items = self.embeddings.items
        return Embeddings(embed(self.rule, histories).to(items.dtype), items)

    def shares(self, history: Histories, item: int, user: int | None) -> Shares:
        """Return the inner products of the rule's parts with the item's vector."""
        target = self.embeddings.items[item].double()
        split = self.rule.split(history)
        entries, crowd = (split.parts @ target).numpy(), float(split.rest[0] @ target)
        folded = float(entries.sum()) + crowd
        if user is None:
            return Shares(folded, entries, 0.0, crowd)
        score = float(self.embeddings.users[user].double() @ target)
        return Shares(score, entries, score - folded if self.rule.own_row else 0.0, crowd)
