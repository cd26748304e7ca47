"""NodeFormer: attention over all nodes by random features, with Gumbel noise on the keys and the graph as a bias.

Wu et al., "NodeFormer: A Scalable Graph Structure Learning Transformer for Node Classification", NeurIPS 2022.

    input        Y = dropout(ELU(LN(x W + b)))
    L layers     q, k, v = Y W + b per head, q and k divided by sqrt(tau) h^1/4
                 O_v = 1/K sum_s sum_w e_ws phi(q_v).phi(k_w) v_w / sum_w e_ws phi(q_v).phi(k_w),  e = exp(Gumbel / tau)
                 O  += beta Ahat v,   Ahat = D^-1/2 (adjacency + I) D^-1/2
                 Y  <- dropout(LN(concat_heads(O) W_O + b_O + Y))
    final        z = Y W_out + b_out
    score        y_ui = z_u . z_i
    loss         BPR(z) - edge_weight / L sum_layers mean over entries (v,w) of (adjacency + I) of log pi(v,w) / d_v

phi are random features of exp(q . k / sqrt(h) tau), their projection drawn anew in every layer of every training step;
pi(v,w) is the weight of w in the attention of v without noise. In recommending there is no noise (e = 1) and one
projection, saved with the model. The noise is per key and shared by all queries, which keeps the attention linear.

How it is computed, exactly: attention and graph bias are linear in v, so W_V and W_O are multiplied first and applied
to the sums over keys, and once for all heads to Ahat Y; no value row of a head is ever made. Samples are gone through
one by one (`layers.kernel_attention`), with nothing of size N x K x h kept.

Departures from the paper, besides those of all encoders (`encoder`): the edge loss is a mean over entries and heads, as
in the authors' program; the paper's formula divides by the number of nodes instead, which is an `edge_weight` of
entries / N times as much. Scoring uses the tau of training, the program does so on small graphs only. Graph biases
beyond the neighbours themselves are not offered.
"""

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import elu

from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import at_items, at_users, row_dot
from rankformer.layers.kernel_attention import both_way_dots, key_sums, mapped_sums, mean_attention
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.random_features import Projection, positive_features, random_projection, scaled_linear
from rankformer.layers.seeded import generator_of, uniform_linear
from rankformer.models.encoder import ENCODER_SPACE, EncoderNetwork, EncoderSettings, layer_norm
from rankformer.models.trained import TrainedModel

_WEIGHTS, _RECOMMENDING, _LAYERS = 1, 2, 3  # streams of randomness, the layers' from the last on; dropout has 0


class NodeFormerSettings(EncoderSettings):
    """Hyperparameters of NodeFormer."""

    num_layers: int = Field(default=2, ge=1)
    """Attention layers L."""
    num_heads: int = Field(default=1, ge=1)
    """Attention heads, each of the full dimension."""
    num_features: int = Field(default=30, ge=1)
    """Random features M."""
    projection: Projection = "orthogonal"
    """How the rows of a random projection lie to each other: orthogonal as published, simplex or gaussian."""
    temperature: float = Field(default=0.25, gt=0)
    """Temperature tau of the attention and of its noise."""
    gumbel: bool = True
    """Whether training adds Gumbel noise to the keys."""
    num_samples: int = Field(default=5, ge=1)
    """Noise samples K that a training step averages over."""
    bias_order: int = Field(default=1, ge=0)
    """Whether the attention has the graph as a bias: 0 no, 1 yes."""
    bias_transform: Literal["identity", "sigmoid"] = "identity"
    """How the weight beta of the bias is learned: as itself from 1, or as sigmoid(b) from b = 0.1."""
    edge_weight: float = Field(default=0.1, ge=0)
    """Weight of the edge loss."""
    layer_norm: bool = True
    """Whether embeddings are normalised, at the input and after each layer."""
    residual: bool = True
    """Whether a layer adds its input."""
    activation: bool = False
    """Whether a layer ends in ELU."""
    jumping_knowledge: bool = False
    """Whether the output layer sees the outputs of all layers side by side, or only the last."""

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if self.bias_order > 1:
            raise ConfigError(
                f"bias_order={self.bias_order}: all pairs within 2^(order-1) hops would have to be listed, "
                "millions even on small data; use 0 or 1"
            )
        if self.projection == "simplex" and self.hidden_dim < 2:
            raise ConfigError("projection='simplex' needs hidden_dim of at least 2; use 'orthogonal'")
        return self


class NodeFormerLayer(nn.Module):
    """Kernel attention of all heads with the graph bias, residual and norm."""

    def __init__(self, settings: NodeFormerSettings, generator: torch.Generator) -> None:
        super().__init__()
        dim, heads = settings.hidden_dim, settings.num_heads
        self.settings = settings
        self.query, self.key, self.value = (uniform_linear(dim, heads * dim, generator) for _ in range(3))
        self.output = uniform_linear(heads * dim, dim, generator)
        initial = 1.0 if settings.bias_transform == "identity" else 0.1
        self.bias = nn.Parameter(torch.full((heads,), initial)) if settings.bias_order else None
        self.norm = layer_norm(dim, settings.layer_norm)

    def forward(
        self, graph: BipartiteGraph, rows: Tensor, projection: Tensor, key_weights: Tensor
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Return the next (N, h) rows before dropout, and the features (queries, keys) of each head.

        The projection is (M, h), the weights of the keys (N, H, K) e, the exponentials of the noise; ones without.
        """
        features = self.features(rows, projection)
        weights, biases = self._value_maps()
        out = self.output.bias.expand(len(rows), -1)
        for head, (queries, keys) in enumerate(features):
            sums, norms = key_sums(keys, rows, key_weights[:, head])
            out = out + mean_attention(queries, mapped_sums(sums, norms, weights[head], biases[head]), norms)
        if self.bias is not None:
            strengths = self.bias if self.settings.bias_transform == "identity" else torch.sigmoid(self.bias)
            row_sums = self_loop_propagation(graph, rows.new_ones(len(rows), 1))  # (N, 1)
            out = out + self_loop_propagation(graph, rows) @ torch.tensordot(strengths, weights, 1).T
            out = out + row_sums * (strengths @ biases)
        if self.settings.residual:
            out = out + rows
        out = self.norm(out)
        return elu(out) if self.settings.activation else out, features

    def features(self, rows: Tensor, projection: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the random features (queries, keys) of each head, (N, M) each."""
        heads, dim = self.settings.num_heads, rows.shape[1]
        scale = 1 / (math.sqrt(self.settings.temperature) * dim**0.25)
        queries, keys = (scaled_linear(layer, rows, scale).chunk(heads, 1) for layer in (self.query, self.key))
        return [
            (positive_features(q, projection, "row"), positive_features(k, projection, "all"))
            for q, k in zip(queries, keys, strict=True)
        ]

    def _value_maps(self) -> tuple[Tensor, Tensor]:
        """Return W_O W_V (H, h, h) and W_O b_V (H, h): the output's weights and biases on a head's input."""
        heads, dim = self.settings.num_heads, len(self.output.weight)
        outputs = self.output.weight.view(dim, heads, dim).transpose(0, 1)
        biases = outputs @ self.value.bias.view(heads, dim, 1)
        return outputs @ self.value.weight.view(heads, dim, dim), biases.squeeze(2)


class NodeFormerNetwork(EncoderNetwork):
    """Input layer, L attention layers and output layer over the learned table."""

    projections: Tensor

    def __init__(self, num_users: int, num_items: int, settings: NodeFormerSettings) -> None:
        super().__init__(num_users, num_items, settings)
        dim, depth, seed = settings.hidden_dim, settings.num_layers, settings.seed
        generator = generator_of(seed, 0, _WEIGHTS)
        self.settings = settings
        self.input = uniform_linear(settings.embedding_dim, dim, generator)
        self.norm = layer_norm(dim, settings.layer_norm)
        self.layers = nn.ModuleList(NodeFormerLayer(settings, generator) for _ in range(depth))
        seen = dim * (depth + 1) if settings.jumping_knowledge else dim
        self.output = uniform_linear(seen, settings.output_dim, generator)
        saved = generator_of(seed, 0, _RECOMMENDING)
        self.register_buffer("projections", torch.stack([self._draw_projection(saved) for _ in range(depth)]))
        self._batch: Batch | None = None
        self._edge_loss: Tensor | float = 0.0

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        self._batch = batch
        ranking = super().loss(graph, batch)
        edge_loss, self._edge_loss = self._edge_loss, 0.0
        return ranking + edge_loss

    def encode(self, graph: BipartiteGraph) -> Tensor:
        """Return the final embeddings of all nodes, (n+m, output_dim); in training mode keep the edge loss beside."""
        settings = self.settings
        rows = self.dropout(elu(self.norm(self.input(self.table))))
        seen, score = [rows], rows.new_zeros(())
        for number, layer in enumerate(self.layers):
            projection, key_weights = self._draws(number, rows)
            rows, features = layer(graph, rows, projection, key_weights)
            rows = self.dropout(rows)
            seen.append(rows)
            if self.training and settings.edge_weight:
                score = score + edge_score(graph, features)
        if self.training:
            self._edge_loss = -settings.edge_weight / settings.num_layers * score
        result: Tensor = self.output(torch.cat(seen, dim=1) if settings.jumping_knowledge else rows)
        return result

    def _draws(self, number: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projection and the weights of the keys for a layer: fresh ones in training, else the saved."""
        settings = self.settings
        no_noise = rows.new_ones(len(rows), settings.num_heads, 1)
        if not self.training or self._batch is None:
            return self.projections[number], no_noise
        generator = generator_of(self._batch.seed, self._batch.step, _LAYERS + number)
        projection = self._draw_projection(generator).to(rows)
        if not settings.gumbel:
            return projection, no_noise
        draws = torch.empty(len(rows), settings.num_heads, settings.num_samples).exponential_(generator=generator)
        return projection, noise_weights(draws.log_().neg_().to(rows), settings.temperature)

    def _draw_projection(self, generator: torch.Generator) -> Tensor:
        settings = self.settings
        return random_projection(settings.projection, settings.num_features, settings.hidden_dim, generator)


def noise_weights(noise: Tensor, tau: float) -> Tensor:
    """Return exp(g / tau) of Gumbel values g (N, H, K), up to one factor for each head and sample.

    The factor cancels, and keeps exp in range.
    """
    return ((noise - noise.amax(0)) / tau).exp_()


def edge_score(graph: BipartiteGraph, features: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the mean over entries (v,w) of adjacency + I, and over heads, of log pi(v,w) / d_v: never above 0.

    With queries f and keys k (N, M) of each head, pi(v,w) = f_v . k_w / f_v . o, o = sum_w k_w, and the d_v entries of
    v share one log(f_v . o) / d_v.
    """
    scale = (1 / (graph.degree + 1)).to(features[0][0].dtype)  # (N,) 1 / d_v
    entries = 2 * graph.num_edges + graph.num_nodes
    total = scale.new_zeros(())
    for queries, keys in features:
        from_users, from_items = both_way_dots(graph, queries, keys).log()  # (E,) each
        total = total + torch.dot(from_users, at_users(graph, scale)) + torch.dot(from_items, at_items(graph, scale))
        total = total + torch.dot(row_dot(queries, keys).log(), scale) - (queries @ keys.sum(0)).log().sum()
    return total / (entries * len(features))


class NodeFormer(TrainedModel):
    """Attention over all nodes by random features, with Gumbel noise on the keys and the graph as a bias.

    Use it as a baseline: a general graph transformer, made for node classification, from the paper's comparison.
    """

    name = "nodeformer"
    title = "NodeFormer"
    paper = (
        "Wu et al., NodeFormer: A Scalable Graph Structure Learning Transformer for Node Classification, NeurIPS 2022"
    )
    network_class = NodeFormerNetwork
    settings: NodeFormerSettings
    ladder = {"edge_weight": (0.03, 0.1, 0.3), "weight_decay": (1e-4, 1e-3, 1e-2)}
    search_space = {
        "num_layers": {"low": 1, "high": 3},
        "temperature": {"low": 0.1, "high": 1.0, "log": True},
        "edge_weight": {"low": 0.01, "high": 1.0, "log": True},
        "layer_norm": [True, False],
        **ENCODER_SPACE,
    }

    @TrainedModel.takes(NodeFormerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
