"""Scorers by the name they have in a run folder."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.aspect_scorer import AspectScorer
from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import BlendScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.item_scorer import ITEM_WEIGHTS, ItemScorer

SCORERS: dict[str, type[Scorer]] = {
    Embeddings.kind: Embeddings,
    AspectScorer.kind: AspectScorer,
    BlendScorer.kind: BlendScorer,
    **dict.fromkeys(ITEM_WEIGHTS, ItemScorer),
}


def restore_scorer(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], history: Interactions) -> Scorer:
    """Return the scorer that its metadata describes, checked.

    Raises:
        DataError: the kind is unknown, or tensors and numbers do not fit together.
    """
    kind = str(metadata.get("kind"))
    if kind not in SCORERS:
        raise DataError(f"its scorer is none of {', '.join(SCORERS)}")
    try:
        scorer = SCORERS[kind].restore(tensors, metadata, history)
    except TypeError as error:
        raise DataError(f"its scorer is incomplete: {error}") from error
    unknown = metadata.keys() - scorer.metadata().keys()
    if unknown:
        raise DataError(f"its {kind} scorer has no {min(unknown)!r}")
    return scorer
