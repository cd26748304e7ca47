"""LightGCN: the mean of what linear, weight-free propagation over the user-item graph makes of a learned table.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR 2020.

    layer    z^(k)_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i),   z^(k)_i likewise over N_i
    mean     v = 1/(K+1) sum_{k=0..K} z^(k)                                                (all in Sec. 3.1)
    score    y_ui = v_u . v_i

Learned: one table z^(0) of (n+m) x d, drawn from Normal(0, 0.1^2). Loss: BPR with one negative per pair plus `l2` on
the rows of z^(0) that occur. Departures from the paper: it starts from Xavier's range and penalises the whole table,
start and penalty here are those of its authors' PyTorch code; that code draws users uniformly in mini-batches, the
default here is every pair once in one full-batch step, the protocol of Rankformer's authors. The paper has no repeated
pairs, here they are parallel edges: c lines of a pair weigh c times, in the sums as in the degrees.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.models.fold_in_rules import symmetric_rule
from rankformer.scoring.fold_in import WeightedSum
from rankformer.training.settings import TrainingSettings


class LightGCNSettings(TrainingSettings):
    """Knobs of LightGCN; the defaults were chosen on validation (experiments/LOG.md)."""

    epochs: int = Field(default=600, ge=1)
    """Passes over the training pairs; the step size falls to 0 over them."""
    learning_rate: float = Field(default=0.05, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    l2: float = Field(default=5e-3, ge=0)
    """Weight of the squared length of the learned rows, as they occur in a batch."""
    embedding_dim: int = Field(default=64, ge=1)
    """Width d of the vectors."""
    num_layers: int = Field(default=2, ge=0)
    """Propagation layers K; the final vectors are the mean over layers 0 to K."""


class LightGCNNetwork(TableNetwork):
    """The learned table, propagated K times and averaged."""

    def __init__(self, num_nodes: int, settings: LightGCNSettings, seed: int) -> None:
        super().__init__(num_nodes, settings.embedding_dim, seed)
        self.num_layers = settings.num_layers

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes, (n+m, d), users first."""
        return light_propagation(graph, self.table, self.num_layers)

    def fold_in(self, graph: BipartiteGraph) -> WeightedSum | None:
        """Return the propagation to a user whose own row is zero.

        v_u = z_u / (K+1) + 1/sqrt(d_u) sum_i t_i with t_i = 1/((K+1) sqrt(d_i)) sum_{k<K} z^(k)_i, and the sum of the
        first K layers is K times the mean that K - 1 layers give.
        """
        k = self.num_layers
        if k == 0:
            return None
        return symmetric_rule(graph, light_propagation(graph, self.table, k - 1) * (k / (k + 1)), own_row=True)


class LightGCN(GradientModel):
    """LightGCN with the contract of every model: fit, recommend, similar_items, save, load."""

    name = "lightgcn"
    paper = "He et al., LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation, SIGIR 2020"
    settings_class = LightGCNSettings
    settings: LightGCNSettings

    def build(self, num_nodes: int) -> LightGCNNetwork:
        """Return the untrained network."""
        return LightGCNNetwork(num_nodes, self.settings, self.seed)
