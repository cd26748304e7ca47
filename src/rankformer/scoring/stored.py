"""Scorers by the name they have in a run folder."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.item_scorer import ITEM_WEIGHTS, ItemScorer

SCORERS: dict[str, type[Scorer]] = {
    Embeddings.kind: Embeddings,
    AspectScorer.kind: AspectScorer,
    **dict.fromkeys(ITEM_WEIGHTS, ItemScorer),
}


def restore_scorer(metadata: Any, tensors: Mapping[str, Tensor], history: Interactions) -> Scorer:
    """Return the scorer that its metadata describes, checked.

    Raises:
        DataError: the kind is unknown, or tensors and numbers do not fit together.
    """
    if not isinstance(metadata, dict) or metadata.get("kind") not in SCORERS:
        raise DataError(f"its scorer is none of {', '.join(SCORERS)}")
    try:
        return SCORERS[metadata["kind"]].restore(tensors, metadata, history)
    except TypeError as error:
        raise DataError(f"its scorer is incomplete: {error}") from error
