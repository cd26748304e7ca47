"""iALS: matrix factorisation of all pairs by weighted least squares.

Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008; what makes it strong is in
Rendle, Krichene, Zhang and Koren, "Revisiting the Performance of iALS on Item Recommendation Benchmarks", RecSys 2022.

    minimise  sum_{u,i} c_ui (a_ui - v_u . v_i)^2 + lambda (sum_u |v_u|^2 + sum_i |v_i|^2)
    score     y_ui = v_u . v_i

a = 1 and c = `weight` on the training pairs, a = 0 and c = 1 on all others; a repeated pair weighs again. Each side is
solved for in turn by a few steps of conjugate gradients (`graph.least_squares`). At the end every user is solved for
exactly from the items: so a user outside the training data is embedded by the very rule that made those inside.

Departures: Hu et al. have c = 1 + alpha r for a pair seen r times, here r lines weigh 1 + r (c - 1) and ask for the
value r c / (1 + r (c - 1)), nearly 1; Rendle et al. scale lambda by how often a row occurs, here it is one number for
all; the number of rounds is fixed.
"""

from pydantic import Field

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.models.base import Learned
from rankformer.models.closed_form import ClosedFormModel, ClosedFormSettings
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import Histories, embed
from rankformer.scoring.least_squares_fold_in import LeastSquares


class IALSSettings(ClosedFormSettings):
    """Knobs of iALS."""

    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the vectors."""
    weight: float = Field(default=40.0, ge=1)
    """Weight c of a training pair, where every other pair weighs 1."""
    regularization: float = Field(default=100.0, gt=0)
    """Weight lambda of the squared lengths of all vectors."""
    rounds: int = Field(default=15, ge=1)
    """How often each side is solved for."""


class IALS(ClosedFormModel):
    """iALS with the contract of every model."""

    name = "ials"
    paper = "Hu et al., Collaborative Filtering for Implicit Feedback Datasets, ICDM 2008"
    settings_class = IALSSettings
    settings: IALSSettings

    def solve(self, train: Interactions) -> Learned:
        """Return the items after the last round, and the users that they imply."""
        graph, knobs = BipartiteGraph.from_interactions(train, self.device), self.settings
        factors = least_squares_factors(
            graph,
            knobs.embedding_dim,
            self.seed,
            weight=knobs.weight,
            regularization=knobs.regularization,
            rounds=knobs.rounds,
        )
        items = factors[graph.num_users :].cpu().clone()
        rule = LeastSquares(items, knobs.weight, knobs.regularization)
        users = embed(rule, Histories.of(train.users, train.items, train.num_users)).float()
        return Learned(Embeddings(users, items), rule)
