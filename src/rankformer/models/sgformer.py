"""SGFormer: one attention layer over all nodes beside a shallow graph convolution, mixed by a fixed weight.

Wu et al., "SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations", NeurIPS 2023.

    attention    a0 = dropout(relu(LN(x W + b)))
                 a <- dropout(LN(alpha mean_heads(A(q, k) v) + (1 - alpha) a)),   q, k, v = a W + b each
    graph        g0 = dropout(relu(BN(x W' + b')))
                 g <- dropout(relu(BN((D^-1/2 (adjacency + I) D^-1/2 g) W_l + b_l))) + g0
    final        z  = (w g + (1 - w) a) W_out + b_out,   or [a ; g] W_out + b_out with aggregate="cat"
    score        y_ui = z_u . z_i

A is that of `layers.simple_attention`. LN and BN are layer and batch normalisation, the latter over all nodes, with
running statistics in recommending. What is learned and by which loss: `encoder`.

Departures from the paper, besides those of all encoders: as in the authors' program, every residual of the graph branch
goes to g0, and the attention's residual halves by default. The program has one weight decay and one dropout for each
branch, here one of each serves both.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.seeded import SeededDropout, generator_of, uniform_linear
from rankformer.layers.simple_attention import Norm, SimpleAttention
from rankformer.models.encoder import ENCODER_SPACE, EncoderNetwork, EncoderSettings, InputLayer, layer_norm
from rankformer.models.trained import TrainedModel


class SGFormerSettings(EncoderSettings):
    """Hyperparameters of SGFormer."""

    graph_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight w of the graph branch in the sum of both."""
    aggregate: Literal["add", "cat"] = "add"
    """How the branches are combined: weighted sum, or concatenation."""
    attention_layers: int = Field(default=1, ge=0)
    """Layers of the attention branch."""
    num_heads: int = Field(default=1, ge=1)
    """Attention heads H, each of the full dimension; their mean counts."""
    norm: Norm = "frobenius"
    """What queries and keys are divided by: one norm over all nodes (as published), or each row's norm."""
    attention_weight: bool = True
    """Whether values have weights of their own (off: they are the layer's input)."""
    attention_residual: bool = True
    """Whether an attention layer keeps 1 - alpha of its input."""
    update_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight alpha of an attention layer's result beside its input."""
    attention_norm: bool = True
    """Whether the attention branch normalises its rows."""
    attention_activation: bool = False
    """Whether an attention layer ends in a ReLU."""
    graph_layers: int = Field(default=2, ge=0)
    """Layers of the graph branch."""
    graph_layer_weight: bool = True
    """Whether graph layers have weights (off: they only propagate, unless `use_init` needs weights)."""
    use_init: bool = False
    """Whether the weights of a graph layer see the branch's input beside what was propagated."""
    graph_residual: bool = True
    """Whether each graph layer adds the branch's input."""
    graph_norm: bool = True
    """Whether the graph branch normalises its columns over all nodes."""
    graph_activation: bool = True
    """Whether a graph layer ends in a ReLU."""


class AttentionLayer(nn.Module):
    """Global attention with its residual."""

    def __init__(self, settings: SGFormerSettings, dropout: SeededDropout, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.dropout = settings, dropout
        self.attention = SimpleAttention(
            "sgformer", settings.hidden_dim, settings.num_heads, settings.attention_weight, settings.norm, generator
        )
        self.norm = layer_norm(settings.hidden_dim, settings.attention_norm)

    def forward(self, rows: Tensor) -> Tensor:
        settings = self.settings
        result: Tensor = self.attention(rows)
        if settings.attention_residual:
            result = torch.lerp(rows, result, settings.update_weight)
        result = self.norm(result)
        kept: Tensor = self.dropout(torch.relu(result) if settings.attention_activation else result)
        return kept


class GraphLayer(nn.Module):
    """Graph convolution with its residual to the branch's input."""

    def __init__(self, settings: SGFormerSettings, dropout: SeededDropout, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.dropout, dim = settings, dropout, settings.hidden_dim
        self.linear: nn.Module = nn.Identity()
        if settings.use_init or settings.graph_layer_weight:
            self.linear = uniform_linear(2 * dim if settings.use_init else dim, dim, generator)
        self.norm = graph_norm(settings)

    def forward(self, graph: BipartiteGraph, rows: Tensor, source: Tensor) -> Tensor:
        """Return the next (N, h) rows, from those of the layer before and the branch's input."""
        settings = self.settings
        result = self_loop_propagation(graph, rows)
        if settings.use_init:
            result = torch.cat([result, source], dim=1)
        result = self.norm(self.linear(result))
        kept: Tensor = self.dropout(torch.relu(result) if settings.graph_activation else result)
        return kept + source if settings.graph_residual else kept


class SGFormerNetwork(EncoderNetwork):
    """Both branches and the output layer over the learned table."""

    def __init__(self, num_users: int, num_items: int, settings: SGFormerSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.graph_weight = settings.graph_weight if settings.aggregate == "add" else None
        generator, dim, drop = generator_of(settings.seed, step=0), settings.hidden_dim, self.dropout
        first = [uniform_linear(settings.embedding_dim, dim, generator) for _ in range(2)]
        self.attention_input = InputLayer(first[0], layer_norm(dim, settings.attention_norm), drop)
        self.graph_input = InputLayer(first[1], graph_norm(settings), drop)
        layers = range(settings.attention_layers), range(settings.graph_layers)
        self.attention_layers = nn.ModuleList(AttentionLayer(settings, drop, generator) for _ in layers[0])
        self.graph_layers = nn.ModuleList(GraphLayer(settings, drop, generator) for _ in layers[1])
        self.output = uniform_linear(dim if settings.aggregate == "add" else 2 * dim, settings.output_dim, generator)

    def encode(self, graph: BipartiteGraph) -> Tensor:
        attended = self.attention_input(self.table)
        for layer in self.attention_layers:
            attended = layer(attended)
        convolved = source = self.graph_input(self.table)
        for layer in self.graph_layers:
            convolved = layer(graph, convolved, source)
        if self.graph_weight is None:
            mixed = torch.cat([attended, convolved], dim=1)
        else:
            mixed = torch.lerp(attended, convolved, self.graph_weight)
        result: Tensor = self.output(mixed)
        return result


def graph_norm(settings: SGFormerSettings) -> nn.Module:
    """Return the normalisation of the graph branch, or nothing if the settings say so."""
    return nn.BatchNorm1d(settings.hidden_dim) if settings.graph_norm else nn.Identity()


class SGFormer(TrainedModel):
    """One attention layer over all nodes beside a shallow graph convolution.

    Use it as a baseline: a general graph transformer, made for node classification, from the paper's comparison.
    """

    name = "sgformer"
    title = "SGFormer"
    paper = "Wu et al., SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations, NeurIPS 2023"
    network_class = SGFormerNetwork
    settings: SGFormerSettings
    uses_weights = True
    ladder = {"graph_weight": (0.2, 0.5, 0.8), "weight_decay": (1e-4, 1e-3, 1e-2)}
    search_space = {
        "graph_layers": {"low": 1, "high": 4},
        "graph_weight": {"low": 0.1, "high": 0.9},
        "update_weight": {"low": 0.1, "high": 0.9},
        **ENCODER_SPACE,
    }

    @TrainedModel.takes(SGFormerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
