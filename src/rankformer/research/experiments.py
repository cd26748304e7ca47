"""Every table and figure by its name."""

from collections.abc import Callable
from typing import NamedTuple

from rankformer.research.ablation import ablation_computations, show_ablation
from rankformer.research.comparison import comparison_computations, show_comparison, show_runtime
from rankformer.research.content import Content
from rankformer.research.figures import alpha_computations, show_alpha, show_tau, tau_computations
from rankformer.research.lemma import lemma_computations, show_lemma
from rankformer.research.request import Request
from rankformer.research.results import Computation, Results
from rankformer.research.untrained import random_computations, show_random


class Experiment(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        title: of its report.
        seeds: how many by default.
        computations: what has to be computed for a request.
        show: what its results say.
        options: the flags that mean something to it, beyond those of every experiment.
    """

    title: str
    seeds: int
    computations: Callable[[Request], list[Computation]]
    show: Callable[[Request, Results], Content]
    options: frozenset[str]


_TRAINED = frozenset({"dataset", "configs", "epochs"})
_ROWS = _TRAINED | {"methods"}
_RANDOM = frozenset({"dataset", "configs", "layers", "step"})

EXPERIMENTS: dict[str, Experiment] = {
    "table-comparison": Experiment("Performance comparison", 3, comparison_computations, show_comparison, _ROWS),
    "table-ablation": Experiment("Ablation study", 3, ablation_computations, show_ablation, _TRAINED),
    "table-runtime": Experiment("Runtime comparison", 3, comparison_computations, show_runtime, _ROWS),
    "figure-random": Experiment("Untrained embeddings through layers", 5, random_computations, show_random, _RANDOM),
    "figure-tau": Experiment("Tau and number of layers", 1, tau_computations, show_tau, _TRAINED | {"step"}),
    "figure-alpha": Experiment("Offset alpha", 1, alpha_computations, show_alpha, _TRAINED | {"alphas"}),
    "lemma": Experiment("Lemma 1: the gradient through a layer", 3, lemma_computations, show_lemma, frozenset()),
}
