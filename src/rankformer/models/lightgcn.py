"""LightGCN: the mean over layers of linear, weight-free propagation of learned embeddings over the user-item graph.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR 2020.

    layer    z^(k)_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i),   z^(k)_i likewise over N_i
    mean     v = 1/(K+1) sum_{k=0..K} z^(k)                                                (all in Sec. 3.1)
    score    y_ui = v_u . v_i

Learned: one table z^(0) of (n+m) x d. Loss: BPR with one negative per interaction plus `l2` on the embeddings of z^(0)
that occur. Departures from the paper: it initializes from Xavier's range and regularizes the whole table;
initialization and L2 here are those of its authors' PyTorch code; that code draws users uniformly in mini-batches, the
default here is every interaction once in one full-batch step, the protocol of Rankformer's authors. The paper has no
duplicates, here they are parallel edges: c duplicates weigh c times, in the sums as in the degrees.
"""

from typing import Any

from pydantic import Field
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation
from rankformer.models.fold_in_rules import symmetric_rule
from rankformer.models.matrix_factorization import WIDE_RANGES
from rankformer.models.trained import TrainedModel
from rankformer.scoring.fold_in import WeightedSum
from rankformer.training.network import RankingNetwork
from rankformer.training.settings import L2_LADDER, DensitySettings


class LightGCNSettings(
    DensitySettings,
    defaults={
        "epochs": 100,
        "learning_rate": 0.05,
        "schedule": "cosine",
        "validate_every": 10,
        "initialization": "least-squares",
    },
):
    """Hyperparameters of LightGCN; the defaults were chosen on validation (experiments/LOG.md)."""

    usual_l2 = 5e-3

    num_layers: int = Field(default=2, ge=0)
    """Propagation layers K; the final embeddings are the mean over layers 0 to K."""


class LightGCNNetwork(RankingNetwork):
    """The learned table, propagated K times and averaged."""

    def __init__(self, num_users: int, num_items: int, settings: LightGCNSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.num_layers = settings.num_layers

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        return light_propagation(graph, self.table, self.num_layers)

    def fold_in(self, graph: BipartiteGraph) -> WeightedSum | None:
        """Return the propagation to a user without a learned embedding.

        v_u = z_u / (K+1) + 1/sqrt(d_u) sum_i t_i with t_i = 1/((K+1) sqrt(d_i)) sum_{k<K} z^(k)_i, and the sum of the
        first K layers is K times the mean that K - 1 layers give.
        """
        k = self.num_layers
        if k == 0:
            return None
        return symmetric_rule(graph, light_propagation(graph, self.table, k - 1) * (k / (k + 1)), own_embedding=True)


class LightGCN(TrainedModel):
    """Linear, weight-free propagation of learned embeddings over the user-item graph.

    Use it as the standard graph baseline; it is simple, strong on sparse logs, and folds in new users.
    """

    name = "lightgcn"
    title = "LightGCN"
    paper = "He et al., LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation, SIGIR 2020"
    network_class = LightGCNNetwork
    settings: LightGCNSettings
    ladder = {"l2": L2_LADDER}
    uses_weights = True
    on_ranks = True
    search_space = {**WIDE_RANGES, "num_layers": {"low": 1, "high": 4}}

    @TrainedModel.takes(LightGCNSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
