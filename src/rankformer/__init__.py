"""From an interaction log to ranked lists: the reference implementation of Rankformer (WWW 2025)."""

from rankformer.data.interactions import Interactions
from rankformer.embeddings import Embeddings
from rankformer.errors import RankformerError
from rankformer.evaluation.evaluator import Evaluation, evaluate
from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer
from rankformer.models.registry import load_model as load

__all__ = ["Embeddings", "Evaluation", "Interactions", "Popularity", "Rankformer", "RankformerError", "evaluate", "load"]
