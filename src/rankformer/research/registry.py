"""Every exhibit by its name."""

from collections.abc import Callable
from typing import NamedTuple

from rankformer.research.ablation import ablation_cells, show_ablation
from rankformer.research.cells import Cell
from rankformer.research.comparison import comparison_cells, show_comparison
from rankformer.research.content import Content
from rankformer.research.figures import alpha_cells, random_cells, show_alpha, show_random, show_tau, tau_cells
from rankformer.research.lemma_report import lemma_cells, show_lemma
from rankformer.research.request import Request
from rankformer.research.runner import Results
from rankformer.research.runtime import runtime_cells, show_runtime


class Exhibit(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        title: of its report.
        seeds: how many are computed unless said otherwise.
        cells: what has to be computed for a request.
        show: what its results say.
        options: the flags that mean something to it, beyond those of every exhibit.
    """

    title: str
    seeds: int
    cells: Callable[[Request], list[Cell]]
    show: Callable[[Request, Results], Content]
    options: frozenset[str]

    @property
    def needs_data(self) -> bool:
        """Whether it is about datasets."""
        return "dataset" in self.options


_TRAINED = frozenset({"dataset", "configs", "epochs"})

EXHIBITS: dict[str, Exhibit] = {
    "table-comparison": Exhibit("Performance comparison", 3, comparison_cells, show_comparison, _TRAINED | {"methods"}),
    "table-ablation": Exhibit("Ablation study", 3, ablation_cells, show_ablation, _TRAINED),
    "table-runtime": Exhibit("Runtime comparison", 3, runtime_cells, show_runtime, _TRAINED | {"methods"}),
    "figure-random": Exhibit(
        "Untrained embeddings through layers", 5, random_cells, show_random, frozenset({"dataset", "configs", "layers"})
    ),
    "figure-tau": Exhibit("Step size and number of layers", 1, tau_cells, show_tau, _TRAINED | {"step"}),
    "figure-alpha": Exhibit("Offset alpha", 1, alpha_cells, show_alpha, _TRAINED | {"alphas"}),
    "lemma": Exhibit("Lemma 1: the gradient through a layer", 3, lemma_cells, show_lemma, frozenset()),
}
