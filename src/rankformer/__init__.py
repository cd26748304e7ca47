"""From an interaction log to ranked lists: the reference implementation of Rankformer (WWW 2025).

The public names are loaded on first use, so that `import rankformer` and `rankformer --help` cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions as Interactions
    from rankformer.errors import RankformerError as RankformerError
    from rankformer.evaluation.evaluator import Evaluation as Evaluation
    from rankformer.evaluation.evaluator import evaluate as evaluate
    from rankformer.models.difformer import DIFFormer as DIFFormer
    from rankformer.models.dualvae import DualVAE as DualVAE
    from rankformer.models.ease import EASE as EASE
    from rankformer.models.gf_cf import GFCF as GFCF
    from rankformer.models.gformer import GFormer as GFormer
    from rankformer.models.ials import IALS as IALS
    from rankformer.models.item_knn import ItemKNN as ItemKNN
    from rankformer.models.lightgcn import LightGCN as LightGCN
    from rankformer.models.matrix_factorization import MatrixFactorization as MatrixFactorization
    from rankformer.models.mgformer import MGFormer as MGFormer
    from rankformer.models.nodeformer import NodeFormer as NodeFormer
    from rankformer.models.popularity import Popularity as Popularity
    from rankformer.models.rankformer import Rankformer as Rankformer
    from rankformer.models.rankformer_cl import RankformerCL as RankformerCL
    from rankformer.models.registry import load_model as load_model
    from rankformer.models.sgformer import SGFormer as SGFormer
    from rankformer.models.xsimgcl import XSimGCL as XSimGCL
    from rankformer.scoring.embeddings import Embeddings as Embeddings

_HOME_OF = {
    "DIFFormer": "rankformer.models.difformer",
    "DualVAE": "rankformer.models.dualvae",
    "EASE": "rankformer.models.ease",
    "Embeddings": "rankformer.scoring.embeddings",
    "Evaluation": "rankformer.evaluation.evaluator",
    "GFCF": "rankformer.models.gf_cf",
    "GFormer": "rankformer.models.gformer",
    "IALS": "rankformer.models.ials",
    "Interactions": "rankformer.data.interactions",
    "ItemKNN": "rankformer.models.item_knn",
    "LightGCN": "rankformer.models.lightgcn",
    "MGFormer": "rankformer.models.mgformer",
    "MatrixFactorization": "rankformer.models.matrix_factorization",
    "NodeFormer": "rankformer.models.nodeformer",
    "Popularity": "rankformer.models.popularity",
    "Rankformer": "rankformer.models.rankformer",
    "RankformerCL": "rankformer.models.rankformer_cl",
    "RankformerError": "rankformer.errors",
    "SGFormer": "rankformer.models.sgformer",
    "XSimGCL": "rankformer.models.xsimgcl",
    "evaluate": "rankformer.evaluation.evaluator",
    "load_model": "rankformer.models.registry",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'rankformer' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME_OF[name]), name)
