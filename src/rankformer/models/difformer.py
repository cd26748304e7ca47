"""DIFFormer: layers that diffuse every node's state to every node, with a graph convolution added.

Wu et al., "DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion", ICLR 2023.

    input    y0 = dropout(relu(LN(x W + b)))
    layer    o  = A(q, k) v,  q = y W_Q + b_Q,  k = y W_K + b_K,  v = y, or y W_V + b_V with use_weight
             p  = D^-1/2 (adjacency + I) D^-1/2 v
             t  = o + p,  or (1 - g) o + g p for a graph_weight g;  the mean over heads
             y <- dropout(LN(alpha (t [+ y0]) + (1 - alpha) y))
    final    z  = y W_out + b_out
    score    y_ui = z_u . z_i

A is that of `layers.simple_attention`: `kernel="simple"` DIFFormer-s, linear in the number of nodes; "sigmoid"
DIFFormer-a, which needs all pairs of nodes and is refused beyond 4096. What is learned and by which loss: `encoder`.

Departures from the paper, besides those of all encoders: as in the authors' program, unlike the formula, queries and
keys are divided by one norm over all nodes (`norm="row"` is the formula), the attention and the graph are added where
the paper averages them, and the energy is not part of the loss.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.seeded import SeededDropout, generator_of, uniform_linear
from rankformer.layers.simple_attention import Norm, SimpleAttention
from rankformer.models.encoder import ENCODER_SPACE, EncoderNetwork, EncoderSettings, InputLayer, layer_norm
from rankformer.models.trained import TrainedModel

MOST_NODES_OF_ALL_PAIRS = 4096


class DIFFormerSettings(EncoderSettings):
    """Hyperparameters of DIFFormer."""

    num_layers: int = Field(default=2, ge=0)
    """Diffusion steps L."""
    num_heads: int = Field(default=1, ge=1)
    """Attention heads H, each of the full dimension; their mean counts."""
    kernel: Literal["simple", "sigmoid"] = "simple"
    """Attention of version s, linear in the nodes, or of version a, which compares all pairs of at most 4096 nodes."""
    norm: Norm = "frobenius"
    """What queries and keys are divided by: one norm over all nodes (the program), or each row's norm (the formula)."""
    update_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight alpha of a layer's result beside its input."""
    use_residual: bool = True
    """Whether a layer keeps 1 - alpha of its input (off: the result replaces it)."""
    use_source: bool = False
    """Whether each layer adds the input of the first layer."""
    use_weight: bool = False
    """Whether values have weights of their own (off: they are the layer's input)."""
    use_graph: bool = True
    """Whether the graph convolution is added to the attention."""
    graph_weight: float | None = Field(default=None, gt=0, le=1)
    """Weight g of the graph convolution, the attention has 1 - g; none adds both in full."""
    use_layer_norm: bool = True
    """Whether rows are normalised after the input and after each layer."""


class DiffusionLayer(nn.Module):
    """One step of the diffusion."""

    def __init__(self, settings: DIFFormerSettings, dropout: SeededDropout, generator: torch.Generator) -> None:
        super().__init__()
        self.settings = settings
        self.attention = SimpleAttention(
            "difformer" if settings.kernel == "simple" else "sigmoid",
            settings.hidden_dim,
            settings.num_heads,
            settings.use_weight,
            settings.norm,
            generator,
        )
        self.norm = layer_norm(settings.hidden_dim, settings.use_layer_norm)
        self.dropout = dropout

    def forward(self, graph: BipartiteGraph, rows: Tensor, source: Tensor) -> Tensor:
        """Return the next (N, h) rows, from those of the layer before and the input of the first layer."""
        settings = self.settings
        step = self.diffuse(graph, rows)
        if settings.use_source:
            step = step + source
        if settings.use_residual:
            step = torch.lerp(rows, step, settings.update_weight)
        result: Tensor = self.dropout(self.norm(step))
        return result

    def diffuse(self, graph: BipartiteGraph, rows: Tensor) -> Tensor:
        """Return attention plus graph convolution, before the residual, (N, h)."""
        settings = self.settings
        reached: Tensor = self.attention(rows)
        if not settings.use_graph:
            return reached
        near = self_loop_propagation(graph, self.attention.mean_values(rows))  # the mean over heads may come first
        return reached + near if settings.graph_weight is None else torch.lerp(reached, near, settings.graph_weight)


class DIFFormerNetwork(EncoderNetwork):
    """Input layer, L diffusion steps and output layer over the learned table."""

    def __init__(self, num_users: int, num_items: int, settings: DIFFormerSettings) -> None:
        if settings.kernel == "sigmoid" and num_users + num_items > MOST_NODES_OF_ALL_PAIRS:
            raise ConfigError(
                f"kernel='sigmoid' compares all pairs of {num_users + num_items} nodes (users and items), and is meant "
                f"for at most {MOST_NODES_OF_ALL_PAIRS}; use kernel='simple'"
            )
        super().__init__(num_users, num_items, settings)
        generator, dim = generator_of(settings.seed, step=0), settings.hidden_dim
        first = uniform_linear(settings.embedding_dim, dim, generator)
        self.input = InputLayer(first, layer_norm(dim, settings.use_layer_norm), self.dropout)
        self.layers = nn.ModuleList(
            DiffusionLayer(settings, self.dropout, generator) for _ in range(settings.num_layers)
        )
        self.output = uniform_linear(dim, settings.output_dim, generator)

    def encode(self, graph: BipartiteGraph) -> Tensor:
        rows = source = self.input(self.table)
        for layer in self.layers:
            rows = layer(graph, rows, source)
        result: Tensor = self.output(rows)
        return result


class DIFFormer(TrainedModel):
    """Layers that diffuse every node's state to every other node, with a graph convolution added.

    Use it as a baseline: a general graph transformer, made for node classification, from the paper's comparison.
    """

    name = "difformer"
    title = "DIFFormer"
    paper = "Wu et al., DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion, ICLR 2023"
    network_class = DIFFormerNetwork
    settings: DIFFormerSettings
    uses_weights = True
    ladder = {"update_weight": (0.2, 0.5, 0.8), "weight_decay": (1e-4, 1e-3, 1e-2)}
    search_space = {
        "num_layers": {"low": 1, "high": 4},
        "update_weight": {"low": 0.1, "high": 0.9},
        "use_source": [False, True],
        "use_weight": [False, True],
        **ENCODER_SPACE,
    }

    @TrainedModel.takes(DIFFormerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
