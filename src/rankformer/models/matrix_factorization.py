"""Matrix factorization: a free vector for every user and item, trained to rank.

Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009.

    score    y_ui = z_u . z_i

Learned: one table z of (n+m) x d, drawn from Normal(0, 0.1^2). Loss: BPR with one negative per pair plus `l2` on the
rows of z that occur. It is LightGCN with no layers. Departures from the paper: Adam in place of plain gradient descent
on single triples; every pair once per epoch in place of triples drawn with replacement; one `l2` for users, positives
and negatives alike; no item bias.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.training.settings import TrainingSettings


class MatrixFactorizationSettings(TrainingSettings):
    """Knobs of matrix factorization; the defaults were chosen on validation (experiments/LOG.md)."""

    epochs: int = Field(default=600, ge=1)
    """Passes over the training pairs; the step size falls to 0 over them."""
    learning_rate: float = Field(default=0.05, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    l2: float = Field(default=0.03, ge=0)
    """Weight of the squared length of the learned rows, as they occur in a batch."""
    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the vectors."""


class MatrixFactorizationNetwork(TableNetwork):
    """The learned table and nothing else."""

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the table: no row depends on the graph."""
        return self.table


class MatrixFactorization(GradientModel):
    """Matrix factorization with the contract of every model: fit, recommend, similar_items, save, load."""

    name = "mf"
    paper = "Rendle et al., BPR: Bayesian Personalized Ranking from Implicit Feedback, UAI 2009"
    settings_class = MatrixFactorizationSettings
    settings: MatrixFactorizationSettings

    def build(self, num_nodes: int) -> MatrixFactorizationNetwork:
        """Return the untrained network."""
        return MatrixFactorizationNetwork(num_nodes, self.settings.embedding_dim, self.seed)
