"""MGFormer: one attention layer over all users and items, under a learned mask by degree.

Chen et al., "Masked Graph Transformer for Large-Scale Recommendation", SIGIR 2024.

    tokens      t = x + p              p: fixed, [U S^1/2 ; V S^1/2] of the interaction matrix's decomposition U S V^T
    attention   o_v = sum_w A(v,w) W_V t_w / sum_w A(v,w),   A(v,w) = M(v,w) phi(W_Q t_v d^-1/4) . phi(W_K t_w d^-1/4)
    mask        M(v,w) = sin(pi/2 (z_v + z_w) / 2),   z in (0, 1) learned for each degree
    final       v = t + o
    score       y_ui = v_u . v_i
    loss        align + gamma (uni(users) + uni(items)) / 2        (`losses.alignment`)

phi are simplex random features, whose products estimate exp(q . k / sqrt(d)); their projection is drawn once. Time is
linear in the number of nodes: see `layers.kernel_attention`. A step needs the keys and values of all nodes but the
queries of its batch only, and W_V is applied to the sums over keys, not to every node.

Learned: the table x, W_Q, W_K, W_V, and z. Unconfirmed: no program of the
authors is known and not all of the paper could be read. The tokens, the single layer and head, the kernel, a sine of
learned degrees and the loss are the paper's; the exact form of p, of z, of the mask's argument and of the residual are
a reading, and so are the absence of biases, output matrix and feed-forward network. Each of these is a setting.
Departures from DirectAU, whose loss this is: weight decay excludes the table (`l2` is for it, 0 by default); z
keeps 0.02 away from 0 and 1. Duplicates are parallel edges and count one by one.
"""

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, normalize

from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.sparse_ops import row_dot
from rankformer.layers.degree_mask import DegreeMask, mask_parts
from rankformer.layers.kernel_attention import both_way_dots, key_sums, mapped_sums, masked_attention
from rankformer.layers.random_features import Projection, positive_features, random_projection, scaled_linear
from rankformer.layers.seeded import generator_of, xavier_linear
from rankformer.layers.structural_encoding import structural_encoding
from rankformer.losses.alignment import alignment, uniformity
from rankformer.losses.bpr import bpr
from rankformer.losses.l2 import batch_l2, weight_decay
from rankformer.models.trained import TrainedModel
from rankformer.training.network import EmbeddingNetwork
from rankformer.training.settings import EmbeddingSettings

_WEIGHTS, _FEATURES, _SIGNS = range(3)  # streams of randomness


class MGFormerSettings(
    EmbeddingSettings,
    defaults={
        "tune": True,
        "epochs": 50,
        "learning_rate": 5e-3,
        "schedule": "cosine",
        "batch_size": 2048,
        "validate_every": 2,
        "initialization": "xavier-normal",
    },
):
    """Hyperparameters of MGFormer; initialization, learning rate and gamma are what validation chose."""

    loss: Literal["alignment", "bpr"] = "alignment"
    """What is minimised: alignment and uniformity, or BPR with one negative per interaction."""
    l2: float = Field(default=0.0, ge=0)
    """L2 regularization of the learned embeddings, as they occur in a batch."""
    weight_decay: float = Field(default=1e-6, ge=0)
    """Weight decay of all parameters but the table."""
    encoding: Literal["add", "project", "concatenate", "none"] = "add"
    """How the structural encoding enters the tokens: added, mapped and added, concatenated and mapped, or not."""
    encoding_dim: int | None = Field(default=None, ge=1)
    """Singular vectors r in the encoding; none means d."""
    encoding_matrix: Literal["counts", "normalized"] = "counts"
    """What is decomposed: the interaction matrix, or the same divided by the roots of both degrees."""
    sign_flips: bool = False
    """Whether each training step flips the signs of random columns of the encoding."""
    projection: Projection = "simplex"
    """How the rows of the random projection lie to each other: simplex, orthogonal or gaussian (independent)."""
    num_features: int | None = Field(default=None, ge=1)
    """Random features F; none means d."""
    redraw_every: int | None = Field(default=None, ge=1)
    """Training steps between fresh projections; none keeps one, and recommending always uses the saved one."""
    attention_scale: float | None = Field(default=None, gt=0)
    """What q . k is multiplied by; none means 1/sqrt(d)."""
    weights_gain: float = Field(default=1.0, gt=0, le=1e9)
    """Factor of Xavier's uniform range that the matrices are drawn from."""
    bias: bool = False
    """Whether queries, keys and values have a bias."""
    mask: Literal["buckets", "logarithm", "none"] = "buckets"
    """How importance depends on degree: free for each (beyond 64 each doubling), along its logarithm, or no mask."""
    block: Literal["attention", "transformer"] = "attention"
    """What the layer is: attention alone, or with layer norms, an output matrix and a feed-forward network."""
    residual: Literal["token", "table", "none"] = "token"
    """What is added to the attention's output: the token, its learned part alone, or nothing."""
    gamma: float = Field(default=0.5, ge=0)
    """Weight of uniformity."""
    score: Literal["dot", "cosine"] = "dot"
    """Whether recommending compares embeddings as they are, or scaled to length 1 as the alignment does."""

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> Self:
        if self.encoding == "add" and self.encoding_dim not in (None, self.embedding_dim):
            raise ConfigError(
                f"encoding_dim={self.encoding_dim} cannot be added to tokens of dimension {self.embedding_dim}; "
                "use encoding='project'"
            )
        if self.projection == "simplex" and self.embedding_dim < 2:
            raise ConfigError("projection='simplex' needs embedding_dim of at least 2; use 'orthogonal'")
        return self


class FeedForward(nn.Module):
    """What a whole Transformer block has around its attention: two layer norms, an output matrix, a small network."""

    def __init__(self, dim: int, generator: torch.Generator, gain: float) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.output = xavier_linear(dim, dim, generator, gain=gain)
        self.widen = xavier_linear(dim, 2 * dim, generator, bias=True)
        self.narrow = xavier_linear(2 * dim, dim, generator, bias=True)

    def forward(self, rows: Tensor) -> Tensor:
        result: Tensor = rows + self.narrow(gelu(self.widen(self.between(rows))))
        return result


class MGFormerNetwork(EmbeddingNetwork):
    """Masked linear attention over the learned table and the structural encoding."""

    encoding: Tensor
    projection: Tensor

    def __init__(self, num_users: int, num_items: int, settings: MGFormerSettings) -> None:
        d, gain, seed = settings.embedding_dim, settings.weights_gain, settings.seed
        generator = generator_of(seed, 0, _WEIGHTS)
        super().__init__(num_users, num_items, settings, generator)
        self.settings = settings
        self.scale = (settings.attention_scale or d**-0.5) ** 0.5  # of queries and of keys
        self.query, self.key, self.value = (
            xavier_linear(d, d, generator, bias=settings.bias, gain=gain) for _ in range(3)
        )
        r = 0 if settings.encoding == "none" else settings.encoding_dim or d
        inputs = {"project": r, "concatenate": d + r}.get(settings.encoding)
        self.merge = xavier_linear(inputs, d, generator) if inputs else None
        self.block = FeedForward(d, generator, gain) if settings.block == "transformer" else None
        self.mask = None if settings.mask == "none" else DegreeMask(settings.mask)
        self.register_buffer("encoding", torch.zeros(num_users + num_items, r))
        self.register_buffer("projection", self._draw_projection(seed, 0))

    def initialize(self, graph: BipartiteGraph) -> None:
        super().initialize(graph)
        if self.mask is not None:
            self.mask.initialize(graph)
        if self.settings.encoding != "none":
            normalized = self.settings.encoding_matrix == "normalized"
            dim = self.encoding.shape[1]
            self.encoding.copy_(structural_encoding(graph, dim, self.seed, normalized=normalized))

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        rows = self.rows(graph)
        return normalize(rows) if self.settings.score == "cosine" else rows

    def rows(self, graph: BipartiteGraph, nodes: Tensor | None = None, batch: Batch | None = None) -> Tensor:
        """Return the final embeddings of some nodes, (len(nodes), d), the same as if all nodes were computed.

        Args:
            graph: the training interactions.
            nodes: which nodes; all by default.
            batch: of the training step, which decides what it draws anew; without it nothing is drawn.
        """
        tokens, projection = self._tokens(batch), self._projection(batch)
        table: Tensor = self.table
        parts = tokens.new_ones(len(tokens), 1) if self.mask is None else mask_parts(self.mask(graph))
        inputs = tokens if self.block is None else self.block.before(tokens)
        keys = positive_features(scaled_linear(self.key, inputs, self.scale), projection, "all")
        sums, norms = key_sums(keys, inputs, parts.flip(1))
        sums = mapped_sums(sums, norms, self.value.weight, self.value.bias)
        if nodes is not None:
            tokens, parts, table = (embedding(nodes, each) for each in (tokens, parts, table))
            inputs = tokens if self.block is None else self.block.before(tokens)
        queries = positive_features(scaled_linear(self.query, inputs, self.scale), projection, "row")
        out = masked_attention(queries, parts, sums, norms)
        if self.block is not None:
            out = self.block.output(out)
        if self.settings.residual != "none":
            out = out + (tokens if self.settings.residual == "token" else table)
        return out if self.block is None else self.block(out)

    def _tokens(self, batch: Batch | None) -> Tensor:
        encoding, way = self.encoding, self.settings.encoding
        if way == "none":
            return self.table
        if batch is not None and self.settings.sign_flips:
            chance = torch.rand(encoding.shape[1], generator=generator_of(batch.seed, batch.step, _SIGNS))
            encoding = encoding * torch.where(chance < 0.5, -1.0, 1.0).to(encoding)
        if way == "concatenate":
            encoding = torch.cat([self.table, encoding], dim=1)
        if self.merge is not None:
            encoding = self.merge(encoding)
        return encoding if way == "concatenate" else self.table + encoding

    def _projection(self, batch: Batch | None) -> Tensor:
        if batch is None or not self.settings.redraw_every:
            return self.projection
        draw = 1 + (batch.step - 1) // self.settings.redraw_every
        return self._draw_projection(batch.seed, draw).to(self.projection)

    def _draw_projection(self, seed: int, draw: int) -> Tensor:
        settings, d = self.settings, self.settings.embedding_dim
        return random_projection(
            settings.projection, settings.num_features or d, d, generator_of(seed, draw, _FEATURES)
        )

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        objective = self._bpr if self.settings.loss == "bpr" else self._alignment
        return objective(graph, batch) + weight_decay(self, self.settings.weight_decay)

    def _bpr(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        triples, l2 = batch.triples(graph), self.settings.l2
        if triples.graph is not None:
            return bpr(self.rows(graph, None, batch), triples) + batch_l2(self.table, triples, l2)
        nodes, placed = triples.placed(graph.num_nodes)
        return bpr(self.rows(graph, nodes, batch), placed) + batch_l2(embedding(nodes, self.table), placed, l2)

    def _alignment(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        nodes, positions, counts, num_users = None, None, graph.degree, graph.num_users
        if batch.edges is not None:
            # Users have the smaller numbers, so both sides of the batch stay apart when sorted together.
            both = torch.stack([graph.edge_users[batch.edges], graph.edge_items[batch.edges]])
            nodes, positions, counts = torch.unique(both, return_inverse=True, return_counts=True)
            num_users = int(torch.searchsorted(nodes, graph.num_users))
        unit = normalize(self.rows(graph, nodes, batch))
        if positions is None:
            cosines = both_way_dots(graph, unit, unit)[0]  # (E,)
        else:
            cosines = row_dot(embedding(positions[0], unit), embedding(positions[1], unit))  # (B,)
        counts = counts.to(unit.dtype)
        spread = uniformity(unit[:num_users], counts[:num_users]) + uniformity(unit[num_users:], counts[num_users:])
        loss = alignment(cosines) + self.settings.gamma * spread / 2
        l2 = self.settings.l2
        if l2:
            learned = self.table if nodes is None else embedding(nodes, self.table)
            loss = loss + torch.dot(learned.square().sum(1), counts) * (l2 / (2 * len(cosines)))
        return loss


class MGFormer(TrainedModel):
    """One linear attention layer over all users and items, under a learned mask by degree.

    Use it as a baseline of the paper's comparison, or to try a loss of alignment and uniformity.
    """

    name = "mgformer"
    title = "MGFormer"
    paper = "Chen et al., Masked Graph Transformer for Large-Scale Recommendation, SIGIR 2024"
    network_class = MGFormerNetwork
    settings: MGFormerSettings
    ladder = {"gamma": (0.2, 0.5, 1.0, 2.0)}
    search_space = {
        "gamma": {"low": 0.1, "high": 10.0, "log": True},
        "mask": ["buckets", "logarithm", "none"],
        "residual": ["token", "table", "none"],
        "initialization": ["normal", "xavier-normal"],
    }

    @TrainedModel.takes(MGFormerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
