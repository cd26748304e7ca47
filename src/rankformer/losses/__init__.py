"""Losses: each a function in its own file, chosen by the model.

A ranking loss is a function of embeddings, `Triples` and `LossSettings`; `RANKING_LOSSES` names those that the setting
`loss` offers. Each term of its mean is times `Triples.weights`, where there are any.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from torch import Tensor

from rankformer.graph.batch import Triples
from rankformer.losses.bpr import bpr
from rankformer.losses.settings import LossSettings
from rankformer.losses.softmax import softmax, softmax_at_k


class RankingLoss(NamedTuple):
    """A loss, and whether what it learns to rank by are cosines, where lengths of embeddings mean nothing."""

    of: Callable[[Tensor, Triples, LossSettings], Tensor]
    by_cosine: bool


RANKING_LOSSES: dict[str, RankingLoss] = {
    "bpr": RankingLoss(bpr, by_cosine=False),
    "softmax": RankingLoss(softmax, by_cosine=True),
    "softmax-at-k": RankingLoss(softmax_at_k, by_cosine=True),
}
if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(RANKING_LOSSES)]
