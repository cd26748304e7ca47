"""iALS: matrix factorisation of all pairs by weighted least squares.

Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008; what makes it strong is in
Rendle, Krichene, Zhang and Koren, "Revisiting the Performance of iALS on Item Recommendation Benchmarks", RecSys 2022.

    minimise  sum_{u,i} c_ui (a_ui - v_u . v_i)^2 + sum_u lambda_u |v_u|^2 + sum_i lambda_i |v_i|^2
    lambda_u = (c - 1) lambda (d_u + a0 m)^nu,   lambda_i = (c - 1) lambda (d_i + a0 n)^nu,   a0 = 1 / (c - 1)
    score     y_ui = v_u . v_i

a = 1 and c = `weight` on the training interactions, a = 0 and c = 1 on all other pairs; duplicates weigh again. nu is
`frequency_exponent`: 1 regularizes users and items in proportion to how often they occur (Rendle et al.), 0 all alike
(Hu et al.). Each side is solved for in turn by conjugate gradients (`graph.least_squares`). At the end every user is
solved for exactly from the items: so a new user is embedded by the rule that made the training users.

An interaction of weight w counts as w duplicates. Departures: Hu et al. have c = 1 + alpha r for a pair seen r times,
here r interactions weigh 1 + r (c - 1) and ask for the value r c / (1 + r (c - 1)), nearly 1; the number of iterations
is fixed.
"""

from typing import Any

from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.models.closed_form import ClosedFormModel, ClosedFormSettings
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import LeastSquares
from rankformer.scoring.histories import Histories
from rankformer.settings import TunedSettings
from rankformer.training.activations import kept_memory
from rankformer.training.context import WarmStart

UPDATE_ITERATIONS = 2  # from the factors of an earlier fit


class IALSSettings(TunedSettings, ClosedFormSettings):
    """Hyperparameters of iALS."""

    embedding_dim: int = Field(default=128, ge=1)
    """Dimension d of the embeddings."""
    weight: float = Field(default=300.0, gt=1)
    """Weight c of a training interaction, where every other pair weighs 1."""
    regularization: float = Field(default=0.05, gt=0)
    """L2 regularization lambda of the embeddings."""
    frequency_exponent: float = Field(default=1.0, ge=0)
    """Exponent nu: how much L2 regularization grows with the number of interactions of a user or item."""
    iterations: int = Field(default=15, ge=1)
    """How often each side is solved for."""


class IALS(ClosedFormModel):
    """Matrix factorization of all pairs by weighted least squares.

    Use it when seconds of fitting must do; it folds in new users exactly and is strong when tuned.
    """

    name = "ials"
    title = "iALS"
    paper = "Hu et al., Collaborative Filtering for Implicit Feedback Datasets, ICDM 2008"
    settings: IALSSettings
    fidelity = "iterations"
    late_ladder = {"embedding_dim": (256, 512)}
    ladder = {"regularization": (0.003, 0.01, 0.03, 0.05), "weight": (20.0, 100.0, 300.0)}
    uses_weights = True
    on_ranks = True
    search_space = {
        "weight": {"low": 10.0, "high": 1000.0, "log": True},
        "regularization": {"low": 0.001, "high": 0.2, "log": True},
    }

    @ClosedFormModel.takes(IALSSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> Embeddings:
        return self._solve(graph, self.settings.iterations, None)

    def solve_from(self, graph: BipartiteGraph, warm: WarmStart) -> Embeddings:
        old = warm.scorer.as_embeddings()
        start = old.items.new_zeros(graph.num_nodes, old.items.shape[1])  # which the first iteration moves
        start[: old.num_users], start[graph.num_users :][: old.num_items] = old.users, old.items
        return self._solve(graph, min(UPDATE_ITERATIONS, self.settings.iterations), start)

    @kept_memory()
    def _solve(self, graph: BipartiteGraph, iterations: int, start: Tensor | None) -> Embeddings:
        settings, n = self.settings, graph.num_users
        factors = least_squares_factors(
            graph,
            settings.embedding_dim,
            settings.seed,
            weight=settings.weight,
            regularization=settings.regularization,
            frequency_exponent=settings.frequency_exponent,
            iterations=iterations,
            start=start,
        )
        items = factors[n:].cpu().clone()
        strength, offset = (settings.weight - 1) * settings.regularization, graph.num_items / (settings.weight - 1)
        rule = LeastSquares(items, settings.weight, strength, offset, settings.frequency_exponent)
        weights = None if graph.edge_weights is None else graph.edge_weights.cpu()
        histories = Histories(graph.edge_users.long().cpu(), graph.edge_items.long().cpu() - n, n, weights)
        return Embeddings(rule.total(histories).float(), items, rule)
