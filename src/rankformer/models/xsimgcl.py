"""XSimGCL: LightGCN trained on noisy layers, whose average is contrasted with one of them.

Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE 2023.

    layer    H_u = sum_{i in N_u} z^(k-1)_i / sqrt(d_u d_i), likewise for items;   z^(k) = H + eps_cl sign(H) * rho
    mean     v = 1/K sum_{k=1..K} z^(k)                                    layer 0 is left out, unlike in LightGCN
    loss     BPR(v) + lambda_cl ( NCE(v, z^(l*)) over the batch's distinct users + the same over its positive items )
    score    y_ui = v_u . v_i, all layers without noise

rho is a random non-negative row of length one, fresh in each layer of each step (`layers.noisy_propagation`); NCE is
InfoNCE by cosine at temperature tau_cl (`losses.contrastive`). Learned: one table z^(0) of (n+m) x d.

Departures from the authors' program (SELFRec): weight, noise, temperature and step size (theirs are cl_weight=0.2,
cl_noise=0.2, cl_temperature=0.15, learning_rate=1e-3, schedule=constant, num_layers=2); softplus in place of -ln(1e-5 +
sigma), the same but for hopeless margins; the penalty is half the squared length of the learned rows of u, i and j
(`penalty=final` has theirs); validation and early stopping in place of twenty epochs judged on the test part; repeated
pairs are parallel edges; a row is noisy in the last layer only where the batch reads it. A user or item without pairs
has the vector 0, so it scores 0 with everything, above whatever scores less: test items unseen in training stay
candidates.
"""

from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import light_propagation
from rankformer.layers.noisy_propagation import Noise, NoisyLayers, check_contrast_layer, noisy_mean, quiet_mean
from rankformer.losses.contrastive import BatchNodes, ContrastiveSettings, Views, contrastive_loss, start_table_
from rankformer.models.base import GradientModel, TableNetwork
from rankformer.models.fold_in_rules import symmetric_rule
from rankformer.scoring.fold_in import WeightedSum
from rankformer.training.trainer import Batch


class XSimGCLSettings(ContrastiveSettings):
    """Knobs of XSimGCL; the defaults were chosen on validation (experiments/LOG.md)."""

    epochs: int = Field(default=20, ge=1)
    """Passes over the training pairs; the step size falls to 0 over them."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    l2: float = Field(default=3e-4, ge=0)
    """Weight of the squared length of the learned rows, as they occur in a batch."""
    start: Literal["normal", "xavier", "spectral"] = "xavier"
    """What z0 starts from: Normal(0, 0.1^2), Xavier's uniform range, or singular vectors of the training matrix."""
    num_layers: int = Field(default=3, ge=1)
    """Propagation layers K; the final vectors are the mean over layers 1 to K."""
    contrast_layer: int = Field(default=1, ge=1)
    """The layer l* in 1..K that the mean is contrasted with."""
    cl_temperature: float = Field(default=0.2, gt=0)
    """Temperature tau_cl of the contrast."""

    @model_validator(mode="after")
    def _contrast_layer_exists(self) -> Self:
        check_contrast_layer(self.contrast_layer, self.num_layers)
        return self


class XSimGCLNetwork(TableNetwork):
    """The learned table, propagated K times and averaged; with noise in training."""

    def __init__(self, num_nodes: int, settings: XSimGCLSettings, seed: int) -> None:
        super().__init__(num_nodes, settings.embedding_dim, seed)
        self.settings = settings

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        """Return the final rows of all nodes without noise, (n+m, d), users first; not differentiable."""
        return quiet_mean(graph, self.table, self.settings.num_layers)

    def fold_in(self, graph: BipartiteGraph) -> WeightedSum:
        """Return the last propagation: the mean of layers 1..K is one of the mean of layers 0..K-1."""
        return symmetric_rule(graph, light_propagation(graph, self.table, self.settings.num_layers - 1))

    def loss(self, graph: BipartiteGraph, batch: Batch, l2: float) -> Tensor:
        """Return ranking, penalty and contrast of the batch on one noisy pass."""
        noise = Noise(self.settings.cl_noise, batch.seed, batch.step)
        layers = NoisyLayers(self.settings.num_layers, self.settings.contrast_layer, noise)
        chosen = BatchNodes.of(graph, batch)
        views = Views(*noisy_mean(graph, self.table, layers, chosen.nodes))
        return contrastive_loss(chosen, views, l2, self.settings)


class XSimGCL(GradientModel):
    """XSimGCL with the contract of every model: fit, recommend, similar_items, save, load."""

    name = "xsimgcl"
    paper = "Yu et al., XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation, TKDE 2023"
    settings_class = XSimGCLSettings
    settings: XSimGCLSettings

    def build(self, num_nodes: int) -> XSimGCLNetwork:
        """Return the untrained network."""
        return XSimGCLNetwork(num_nodes, self.settings, self.seed)

    def initialise(self, network: TableNetwork, graph: BipartiteGraph) -> None:
        """Set the table to the start that the settings ask for."""
        start_table_(network.table, graph, self.settings, self.seed)
