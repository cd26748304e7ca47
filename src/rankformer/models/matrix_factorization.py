"""Matrix factorization: a free embedding for every user and item, trained to rank.

Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.

    score    y_ui = z_u . z_i

Learned: one table z of (n+m) x d. Loss: BPR with one negative per interaction plus `l2` on the embeddings that occur.
It is LightGCN with no layers. Departures from the paper: Adam in place of plain gradient descent on single triples;
every interaction once per epoch in place of triples drawn with replacement; one `l2` for users, positives and negatives
alike; no item bias.
"""

from typing import Any

from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.trained import TrainedModel
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import L2_LADDER, DensitySettings

# Without layers that normalise, good learning rates lie anywhere between those for mini-batches and the paper's
# full-batch rate, and L2 regularization, the only limit on the table, may weigh a lot.
WIDE_RANGES: dict[str, Any] = {
    "learning_rate": {"low": 1e-3, "high": 1.0, "log": True},
    "l2": {"low": 1e-5, "high": 0.1, "log": True},
}


class MatrixFactorizationSettings(
    DensitySettings,
    defaults={"epochs": 300, "learning_rate": 0.05, "schedule": "cosine", "initialization": "least-squares"},
):
    """Hyperparameters of matrix factorization; the defaults were chosen on validation (experiments/LOG.md)."""

    usual_l2 = 0.045
    density_power = 1.2  # without layers, which average, a row needs regularization on dense logs, too


class MatrixFactorizationNetwork(RankingNetwork):
    """The learned table and nothing else."""

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        del graph
        return self.table


class MatrixFactorization(TrainedModel):
    """A free embedding for every user and item, trained to rank.

    Use it as the plainest trained baseline; it cannot recommend to users outside its training data.
    """

    name = "mf"
    title = "MF"
    paper = "Rendle et al., BPR: Bayesian Personalized Ranking from Implicit Feedback, UAI 2009"
    network_class = MatrixFactorizationNetwork
    settings: MatrixFactorizationSettings
    uses_weights = True
    on_ranks = True
    ladder = {"l2": L2_LADDER}
    search_space = WIDE_RANGES

    @TrainedModel.takes(MatrixFactorizationSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
