"""Every table and figure by its name."""

from collections.abc import Callable
from typing import NamedTuple

from rankformer.research.content import Content
from rankformer.research.figures import plan_alpha, plan_random, plan_tau, show_alpha, show_random, show_tau
from rankformer.research.lemma import plan_lemma, show_lemma
from rankformer.research.request import Request
from rankformer.research.results import Computation, Results
from rankformer.research.statistics import Plan, Row, Rows
from rankformer.research.tables import plan_ablation, plan_comparison, show_ablation, show_comparison, show_runtime


class Experiment(NamedTuple):
    """A table or figure: its title, the seeds by default, what it computes, what it says, and the flags it takes."""

    title: str
    seeds: int
    plan: Callable[[Request], Plan]
    content: Callable[[Request, Rows], Content]
    options: set[str]

    def computations(self, request: Request) -> list[Computation]:
        """Return what has to be computed for a request."""
        return [each for row in self.plan(request).values() for each in row]

    def show(self, request: Request, results: Results) -> Content:
        """Return what the results say; some may be missing."""
        return self.content(request, {key: Row.of(row, results) for key, row in self.plan(request).items()})


_TRAINED = {"dataset", "configs", "epochs"}
_ROWS = _TRAINED | {"methods"}
_RANDOM = {"dataset", "configs", "layers", "step"}

EXPERIMENTS: dict[str, Experiment] = {
    "table-comparison": Experiment("Performance comparison", 3, plan_comparison, show_comparison, _ROWS),
    "table-ablation": Experiment("Ablation study", 3, plan_ablation, show_ablation, _TRAINED),
    "table-runtime": Experiment("Runtime comparison", 3, plan_comparison, show_runtime, _ROWS),
    "figure-random": Experiment("Untrained embeddings through layers", 5, plan_random, show_random, _RANDOM),
    "figure-tau": Experiment("Tau and number of layers", 1, plan_tau, show_tau, _TRAINED | {"step"}),
    "figure-alpha": Experiment("Offset alpha", 1, plan_alpha, show_alpha, _TRAINED | {"alphas"}),
    "lemma": Experiment("Lemma 1: the gradient through a layer", 3, plan_lemma, show_lemma, set()),
}
