"""Losses: each a function in its own file, chosen by the model.

A ranking loss is a function of embeddings and `Triples`; `RANKING_LOSSES` names those that the setting `loss` offers.
Each term of its mean is times `Triples.weights`, where there are any.
"""

from collections.abc import Callable

from torch import Tensor

from rankformer.graph.batch import Triples
from rankformer.losses.bpr import bpr

RANKING_LOSSES: dict[str, Callable[[Tensor, Triples], Tensor]] = {"bpr": bpr}
