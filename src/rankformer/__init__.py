"""From an interaction log to ranked lists: the reference implementation of Rankformer (WWW 2025).

The public names are loaded on first use, so that `import rankformer` and `rankformer --help` cost nothing. The models
among them are those of `rankformer.models.registry`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankformer.data.interactions import Interactions as Interactions
    from rankformer.data.items import Items as Items
    from rankformer.errors import RankformerError as RankformerError
    from rankformer.evaluation.evaluator import Evaluation as Evaluation
    from rankformer.evaluation.evaluator import evaluate as evaluate
    from rankformer.graph.bipartite import BipartiteGraph as BipartiteGraph
    from rankformer.models.registry import *  # noqa: F403
    from rankformer.scoring.embeddings import Embeddings as Embeddings

    __version__: str

_HOME_OF = {
    "BipartiteGraph": "rankformer.graph.bipartite",
    "Embeddings": "rankformer.scoring.embeddings",
    "Evaluation": "rankformer.evaluation.evaluator",
    "Interactions": "rankformer.data.interactions",
    "Items": "rankformer.data.items",
    "RankformerError": "rankformer.errors",
    "evaluate": "rankformer.evaluation.evaluator",
    "load_model": "rankformer.models.registry",
}


def _homes() -> dict[str, str]:
    """Return the module of every public name."""
    from rankformer.models.facts import built_in_models

    return {**_HOME_OF, **{model.class_name: model.module for model in built_in_models()}}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rankformer")
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'rankformer' has no attribute {name!r}")
    homes = _HOME_OF if name in _HOME_OF else _homes()
    if name == "__all__":
        return sorted(homes)
    if name not in homes:
        raise AttributeError(f"module 'rankformer' has no attribute {name!r}; it has {', '.join(sorted(homes))}")
    return getattr(import_module(homes[name]), name)


def __dir__() -> list[str]:
    return sorted([*_homes(), "__version__"])
