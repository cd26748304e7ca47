"""From an interaction log to ranked lists: the reference implementation of Rankformer (WWW 2025).

The public names are loaded on first use, so that `import rankformer` and `rankformer --help` cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions as Interactions
    from rankformer.embeddings import Embeddings as Embeddings
    from rankformer.errors import RankformerError as RankformerError
    from rankformer.evaluation.evaluator import Evaluation as Evaluation
    from rankformer.evaluation.evaluator import evaluate as evaluate
    from rankformer.models.lightgcn import LightGCN as LightGCN
    from rankformer.models.matrix_factorization import MatrixFactorization as MatrixFactorization
    from rankformer.models.popularity import Popularity as Popularity
    from rankformer.models.rankformer import Rankformer as Rankformer
    from rankformer.models.registry import load_model as load_model

_HOME_OF = {
    "Embeddings": "rankformer.embeddings",
    "Evaluation": "rankformer.evaluation.evaluator",
    "Interactions": "rankformer.data.interactions",
    "LightGCN": "rankformer.models.lightgcn",
    "MatrixFactorization": "rankformer.models.matrix_factorization",
    "Popularity": "rankformer.models.popularity",
    "Rankformer": "rankformer.models.rankformer",
    "RankformerError": "rankformer.errors",
    "evaluate": "rankformer.evaluation.evaluator",
    "load_model": "rankformer.models.registry",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rankformer' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME_OF[name]), name)
