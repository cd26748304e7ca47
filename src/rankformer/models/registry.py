"""Every method by its name. To add one: write its file, import it here, add its line."""

import difflib
from os import PathLike
from pathlib import Path

from rankformer.errors import ConfigError, RunFolderError
from rankformer.models.base import Model
from rankformer.models.difformer import DIFFormer
from rankformer.models.dualvae import DualVAE
from rankformer.models.ease import EASE
from rankformer.models.gf_cf import GFCF
from rankformer.models.gformer import GFormer
from rankformer.models.ials import IALS
from rankformer.models.item_knn import ItemKNN
from rankformer.models.lightgcn import LightGCN
from rankformer.models.matrix_factorization import MatrixFactorization
from rankformer.models.mgformer import MGFormer
from rankformer.models.nodeformer import NodeFormer
from rankformer.models.popularity import Popularity
from rankformer.models.rankformer import Rankformer
from rankformer.models.rankformer_cl import RankformerCL
from rankformer.models.sgformer import SGFormer
from rankformer.models.xsimgcl import XSimGCL
from rankformer.runs.run import load_run

MODELS: dict[str, type[Model]] = {
    "rankformer": Rankformer,
    "rankformer-cl": RankformerCL,
    "lightgcn": LightGCN,
    "xsimgcl": XSimGCL,
    "mf": MatrixFactorization,
    "dualvae": DualVAE,
    "difformer": DIFFormer,
    "sgformer": SGFormer,
    "gformer": GFormer,
    "mgformer": MGFormer,
    "nodeformer": NodeFormer,
    "item-knn": ItemKNN,
    "ease": EASE,
    "ials": IALS,
    "gf-cf": GFCF,
    "popularity": Popularity,
}


def model_class(name: str) -> type[Model]:
    """Return the class of a registered method."""
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known models are {', '.join(MODELS)}"
        raise ConfigError(f"unknown model {name!r}; {hint}")
    return MODELS[name]


def load_model(folder: str | PathLike[str]) -> Model:
    """Return the model saved in a run folder, whatever its method, every byte of it checked."""
    run = load_run(Path(folder))
    if run.model not in MODELS:
        raise RunFolderError(f"{folder} holds a model named {run.model!r}, which this version does not know")
    return MODELS[run.model].from_run(run)
