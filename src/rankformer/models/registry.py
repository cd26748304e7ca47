"""Every method by its name. To add one: write its file, and import its class here; that one line enrols it everywhere.

Methods of other packages join by the entry-point group `rankformer.models`, or are named as `package.module:Class`.
"""

import difflib
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from os import PathLike
from pathlib import Path

from rankformer.errors import ConfigError, RunFolderError
from rankformer.models.base import Model
from rankformer.runs.saved import load_run

# The order of these imports is the order of every listing.
# isort: off
from rankformer.models.blend import Blend as Blend
from rankformer.models.rankformer import Rankformer as Rankformer
from rankformer.models.rankformer_cl import RankformerCL as RankformerCL
from rankformer.models.lightgcn import LightGCN as LightGCN
from rankformer.models.xsimgcl import XSimGCL as XSimGCL
from rankformer.models.matrix_factorization import MatrixFactorization as MatrixFactorization
from rankformer.models.mf_softmax import MFSoftmax as MFSoftmax
from rankformer.models.topkgat import TopKGAT as TopKGAT
from rankformer.models.dualvae import DualVAE as DualVAE
from rankformer.models.difformer import DIFFormer as DIFFormer
from rankformer.models.sgformer import SGFormer as SGFormer
from rankformer.models.gformer import GFormer as GFormer
from rankformer.models.mgformer import MGFormer as MGFormer
from rankformer.models.nodeformer import NodeFormer as NodeFormer
from rankformer.models.item_knn import ItemKNN as ItemKNN
from rankformer.models.rp3beta import RP3Beta as RP3Beta
from rankformer.models.slim import SLIM as SLIM
from rankformer.models.ease import EASE as EASE
from rankformer.models.ials import IALS as IALS
from rankformer.models.gf_cf import GFCF as GFCF
from rankformer.models.popularity import Popularity as Popularity
# isort: on

ENTRY_POINTS = "rankformer.models"

MODELS: dict[str, type[Model]] = {
    each.name: each
    for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, Model) and each is not Model
}


def model_class(name: str) -> type[Model]:
    """Return the class of a method: of this package, of an installed plug-in, or given as `package.module:Class`.

    Raises:
        ConfigError: there is no such method, or what was found is not a model.
    """
    if name in MODELS:
        return MODELS[name]
    plug_ins = entry_points(group=ENTRY_POINTS)
    if name in plug_ins.names:
        return _loaded(plug_ins[name])
    if ":" in name:
        return _loaded(EntryPoint(name, name, ENTRY_POINTS))
    known = [*MODELS, *plug_ins.names]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known models are {', '.join(known)}"
    raise ConfigError(f"unknown model {name[:80]!r}; {hint}, or package.module:Class")


def load_model(folder: str | PathLike[str]) -> Model:
    """Return the model saved in a run folder, whatever its method, every byte of it checked."""
    run = load_run(Path(folder))
    if run.model not in MODELS and run.model not in entry_points(group=ENTRY_POINTS).names:
        raise RunFolderError(
            f"{folder} holds a model named {run.model!r}, which is neither built in nor installed as a plug-in; "
            "load it with the class's own load(folder)"
        )
    return model_class(run.model).from_run(run)


def _loaded(point: EntryPoint) -> type[Model]:
    module, _, attribute = point.value.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # it is code of others
        raise ConfigError(f"model {point.value!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ConfigError(f"{point.value} is not a model; it must be a subclass of rankformer.models.base.Model")
    return found
