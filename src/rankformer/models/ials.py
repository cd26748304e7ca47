"""iALS: matrix factorisation of all pairs by weighted least squares.

Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008; what makes it strong is in
Rendle, Krichene, Zhang and Koren, "Revisiting the Performance of iALS on Item Recommendation Benchmarks", RecSys 2022.

    minimise  sum_{u,i} c_ui (a_ui - v_u . v_i)^2 + lambda (sum_u |v_u|^2 + sum_i |v_i|^2)
    score     y_ui = v_u . v_i

a = 1 and c = `weight` on the training interactions, a = 0 and c = 1 on all others; duplicates weigh again. Each side is
solved for in turn by a few steps of conjugate gradients (`graph.least_squares`). At the end every user is solved for
exactly from the items: so a user outside the training data is embedded by the very rule that made those inside.

Departures: Hu et al. have c = 1 + alpha r for a pair seen r times, here r interactions weigh 1 + r (c - 1) with the
target r c / (1 + r (c - 1)), nearly 1; Rendle et al. scale lambda by how often a user or item occurs, here it is one
number for all; the number of iterations is fixed.
"""

from typing import Any

from pydantic import Field

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.models.closed_form import ClosedFormModel, ClosedFormSettings
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import LeastSquares, embed
from rankformer.scoring.histories import Histories


class IALSSettings(ClosedFormSettings):
    """Hyperparameters of iALS."""

    embedding_dim: int = Field(default=64, ge=1)
    """Dimension d of the embeddings."""
    weight: float = Field(default=40.0, ge=1)
    """Weight c of a training interaction, where every other pair weighs 1."""
    regularization: float = Field(default=100.0, gt=0)
    """L2 regularization lambda of all embeddings."""
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
    search_space = {
        "weight": {"low": 2.0, "high": 500.0, "log": True},
        "regularization": {"low": 1.0, "high": 1000.0, "log": True},
    }

    @ClosedFormModel.takes(IALSSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def solve(self, graph: BipartiteGraph) -> Embeddings:
        settings, n = self.settings, graph.num_users
        factors = least_squares_factors(
            graph,
            settings.embedding_dim,
            settings.seed,
            weight=settings.weight,
            regularization=settings.regularization,
            iterations=settings.iterations,
        )
        items = factors[n:].cpu().clone()
        rule = LeastSquares(items, settings.weight, settings.regularization)
        histories = Histories(graph.edge_users.long().cpu(), graph.edge_items.long().cpu() - n, n)
        return Embeddings(embed(rule, histories).float(), items, rule)
