"""Fold-in: embeddings of new users from their histories, one rule per file."""

from rankformer.scoring.fold_in.base import FoldIn, Split, check_tensors, embed
from rankformer.scoring.fold_in.least_squares import LeastSquares
from rankformer.scoring.fold_in.rank_attention import RankFoldIn
from rankformer.scoring.fold_in.simple import Constant, WeightedSum

FOLD_IN_RULES: dict[str, type[FoldIn]] = {kind.rule: kind for kind in (RankFoldIn, WeightedSum, LeastSquares, Constant)}

__all__ = [
    "FOLD_IN_RULES",
    "Constant",
    "FoldIn",
    "LeastSquares",
    "RankFoldIn",
    "Split",
    "WeightedSum",
    "check_tensors",
    "embed",
]
