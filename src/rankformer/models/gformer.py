"""GFormer: a masked graph autoencoder, whose mask is drawn from learned attention.

Li et al., "Graph Transformer for Recommendation", SIGIR 2023.

    score    y_ui = z_u . z_i,   z = sum_{l=0..L} T^l x,   T = D^-1/2 (A + I) D^-1/2              (recommending)

Learned: one table x of (n+m) x d, one attention layer GT (`EdgeAttention`), position layers POS (`PositionLayer`).
Training reads other embeddings than recommending. Every 10 steps attention over the graph, its loops and a few random
pairs scores all entries; it reads x through a position layer that is never trained. `sample_graphs` draws from the
scores, without gradient, an encoder graph E that tends to lose entries of high attention (the rationale), a decoder
graph with random pairs in their stead, and two small graphs R and C that prefer the rationale or what is not in it:

    x_l = E x_{l-1},  x_0 = x;     t_0 = x_L,  t_j = POS_j(t_{j-1});     z = sum_l x_l + sum_{j>0} t_j + GT(decoder, t)
    b = x + R (x_0 + ... + x_{L-1}) + view_weight GT(R, x);              c likewise with C

    loss     - mean z_u . z_i + mean_u log sum_{all items k} exp(z_u . z_k)            cross-entropy over all items
             + uniformity   (mean over the batch's users u of log sum_{all users w} exp(z_u . z_w); likewise for items)
             + independence mean_u log sum_c exp(b_uc c_uc)                            the views disagree ...
             + rationale    1/B sum softplus(b_u . z_j - b_u . b_i), B a full batch    ... and the rationale predicts
             + weight_decay / 2  (squared length of all parameters)

Departures from the official code: negatives j are drawn for every step, there once an epoch; the second term of a
position layer reads the node itself, there by an indexing error the mean of others (`self_feature="official"`); sums
of exponentials do not overflow. The best epoch is chosen on validation, there on test. Duplicates, which it does not
have, count once in the drawn graphs, one by one in A.
"""

import math
from functools import reduce
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import embedding, softplus

from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.edge_sampling import SampledGraphs, SamplingShares, sample_graphs, widened
from rankformer.graph.sparse_ops import row_dot
from rankformer.layers.anchor_positions import Anchors, PositionLayer, draw_anchors
from rankformer.layers.edge_attention import EdgeAttention, attention_weights, edge_attention
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.seeded import generator_of
from rankformer.losses.l2 import weight_decay
from rankformer.losses.log_sum_exp import weighted_log_sum_exp
from rankformer.models.trained import TrainedModel
from rankformer.training.network import EmbeddingNetwork
from rankformer.training.settings import EmbeddingSettings

_LARGEST_ATTENTION = 3.0
_TABLE, _LAYERS, _ANCHORS, _ENTRIES = range(4)  # streams of random numbers


class GFormerSettings(
    EmbeddingSettings,
    defaults={
        "tune": True,
        "epochs": 4,
        "learning_rate": 0.01,
        "schedule": "cosine",
        "batch_size": 4096,
        "validate_every": 1,
        "clip_norm": 20.0,
        "initialization": "xavier-uniform",
    },
):
    """Hyperparameters of GFormer; the defaults are its authors' but for what validation chose.

    Those are the learning rate (1e-3 for 100 epochs), weight decay (2e-4), the numbers of layers (2) and of position
    layers (1), and the weight of uniformity (1): experiments/LOG.md. Recommending does not use position layers, so what
    they learn is lost there. embedding_dim must be a multiple of num_heads.
    """

    weight_decay: float = Field(default=3e-4, ge=0)
    """Weight decay of all parameters, the table among them."""
    num_layers: int = Field(default=5, ge=0)
    """Propagation layers L, in training and in recommending."""
    num_heads: int = Field(default=4, ge=1)
    """Heads of the attention layer."""
    position_layers: int = Field(default=0, ge=0)
    """Position layers between encoder and decoder."""
    num_anchors: int = Field(default=32, ge=1)
    """Anchor nodes that positions are measured from, drawn anew for every epoch."""
    self_feature: Literal["correct", "official"] = "correct"
    """What a position layer adds to the anchors' part: the node's embedding, or those that the official code takes."""
    uniformity: float = Field(default=0.03, ge=0)
    """Weight of spreading users among users and items among items (ssl_reg)."""
    independence: float = Field(default=1e-3, ge=0)
    """Weight of the disagreement of the two views (ctra)."""
    rationale: float = Field(default=1.0, ge=0)
    """Weight of the BPR loss of the rationale view (b2)."""
    view_weight: float = Field(default=0.1, ge=0)
    """Weight of attention in the two views."""
    encoder_share: float = Field(default=0.9, ge=0, le=1)
    """Fraction of the entries that the encoder's graph keeps."""
    view_share: float = Field(default=0.1, ge=0, le=1)
    """Fraction of the entries in each of the two views."""
    decoder_share: float = Field(default=0.8, ge=0, le=100)
    """Random pairs in the decoder's graph, per entry."""
    extra_share: float = Field(default=0.5, ge=0, le=100)
    """Nodes of kept entries among those of dropped entries that random pairs are drawn from, per dropped entry."""
    added_share: float = Field(default=0.01, ge=0, le=100)
    """Random pairs that are scored along with the graph, per entry of the graph."""
    resample_every: int = Field(default=10, ge=1)
    """Steps between draws of the graphs; every epoch starts with one."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.embedding_dim % self.num_heads:
            raise ConfigError(
                f"embedding_dim={self.embedding_dim} cannot be split into {self.num_heads} heads; "
                f"make it a multiple of num_heads"
            )
        return self

    def sampling_shares(self) -> SamplingShares:
        return SamplingShares(self.encoder_share, self.view_share, self.decoder_share, self.extra_share)


class Draw(NamedTuple):
    """What is random in a step beside its batch."""

    anchors: Anchors
    graphs: SampledGraphs


class TrainingRows(NamedTuple):
    """What the loss reads, (n+m, d) each: z, and b and c of the two views."""

    z: Tensor
    rationale: Tensor
    complement: Tensor


class GFormerNetwork(EmbeddingNetwork):
    """Masked encoder, position layers, attention as decoder, and two views.

    The draw of anchors and graphs depends on (seed, step) and on the parameters at the step that draws, the first of
    each epoch and every 10th after it. In between it is kept here and not among the parameters: checkpoints are written
    between epochs, so that a resumed run starts with the same draw.
    """

    def __init__(self, num_users: int, num_items: int, settings: GFormerSettings) -> None:
        super().__init__(num_users, num_items, settings, generator_of(settings.seed, 0, _TABLE))
        self.settings = settings
        dim, generator = settings.embedding_dim, generator_of(settings.seed, 0, _LAYERS)
        self.attention = EdgeAttention(dim, settings.num_heads, generator)
        self.positions = nn.ModuleList(
            PositionLayer(dim, generator, settings.self_feature) for _ in range(settings.position_layers)
        )
        self.score_positions = PositionLayer(dim, generator, settings.self_feature).requires_grad_(False)
        self._draw: tuple[int, Draw] | None = None

    def propagate(self, graph: BipartiteGraph) -> Tensor:
        layers: list[Tensor] = [self.table]
        for _ in range(self.settings.num_layers):
            layers.append(self_loop_propagation(graph, layers[-1]))
        return _sum(layers)

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        triples = batch.triples(graph)
        users, positives, negatives = (nodes.long() for nodes in (triples.users, triples.positives, triples.negatives))
        rows, settings = self.training_rows(self.draw(graph, batch)), self.settings
        fraction = len(users) / min(settings.batch_size or graph.num_edges, graph.num_edges)
        terms = [
            softmax_loss(rows.z, users, positives, graph.num_users, settings.uniformity),
            settings.independence * independence_loss(rows, users),
            settings.rationale * fraction * rationale_loss(rows, users, positives, negatives),
        ]
        return _sum(terms) + weight_decay(self, settings.weight_decay, with_table=True)

    def training_rows(self, draw: Draw) -> TrainingRows:
        """Return what the loss reads under a draw of anchors and graphs."""
        layers: list[Tensor] = [self.table]
        for _ in range(self.settings.num_layers):
            layers.append(draw.graphs.encoder @ layers[-1])
        states = [layers[-1]]
        for position in self.positions:
            states.append(position(states[-1], draw.anchors))
        z = _sum([*layers, *states[1:], self.attention(draw.graphs.decoder, states[-1])])
        # Both views take one step from each layer of the encoder, not from layers of their own.
        inner = _sum(layers[:-1]) if len(layers) > 1 else None
        projected = self.attention.project(self.table)
        views = []
        for view in (draw.graphs.rationale, draw.graphs.complement):
            rows = torch.add(self.table, edge_attention(view.entries, *projected), alpha=self.settings.view_weight)
            views.append(rows if inner is None else rows + view @ inner)
        return TrainingRows(z, *views)

    def draw(self, graph: BipartiteGraph, batch: Batch) -> Draw:
        """Return the draw that holds at a step; a new one at its first step, or if another step's was kept."""
        steps = math.ceil(graph.num_edges / (self.settings.batch_size or graph.num_edges))
        since_epoch = (batch.step - 1) % steps
        since_draw = since_epoch % self.settings.resample_every
        first = batch.step - since_draw
        if since_draw == 0 or self._draw is None or self._draw[0] != first:
            generator = generator_of(batch.seed, batch.step - since_epoch, _ANCHORS)
            anchors = draw_anchors(graph, self.settings.num_anchors, generator)
            graphs = self._sample(graph, anchors, generator_of(batch.seed, first, _ENTRIES))
            self._draw = first, Draw(anchors, graphs)
        return self._draw[1]

    @torch.no_grad()
    def _sample(self, graph: BipartiteGraph, anchors: Anchors, generator: torch.Generator) -> SampledGraphs:
        """Return graphs drawn by the attention of the present parameters."""
        entries = widened(graph, self.settings.added_share, generator)
        queries, keys, _ = self.attention.project(self.score_positions(self.table, anchors))
        attention = attention_weights(entries, queries, keys).sum(0).clamp_(max=_LARGEST_ATTENTION)
        return sample_graphs(entries, attention, self.settings.sampling_shares(), generator)


def softmax_loss(z: Tensor, users: Tensor, positives: Tensor, num_users: int, uniformity: float) -> Tensor:
    """Return the cross-entropy of interactions over all items, plus the weighted spread of users and of items."""
    all_users, all_items = z[:num_users], z[num_users:]
    distinct_users, times = torch.unique(users, return_counts=True)
    at_users, at_items = embedding(distinct_users, z), embedding(torch.unique(positives), z)
    hits = row_dot(embedding(users, z), embedding(positives, z)).mean()
    terms = [weighted_log_sum_exp(at_users, all_items, times.to(z.dtype) / len(users)), -hits]
    if uniformity:
        for queries, keys in ((at_users, all_users), (at_items, all_items)):
            weights = z.new_full((len(queries),), uniformity / len(queries))
            terms.append(weighted_log_sum_exp(queries, keys, weights))
    return _sum(terms)


def independence_loss(rows: TrainingRows, users: Tensor) -> Tensor:
    """Return the mean over users of log sum_c exp(b_uc c_uc), c over the d coordinates."""
    return torch.logsumexp(embedding(users, rows.rationale) * embedding(users, rows.complement), dim=1).mean()


def rationale_loss(rows: TrainingRows, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return mean softplus(b_u . z_j - b_u . b_i): users and positives of the rationale view, negatives of z."""
    at_users, at_positives = embedding(users, rows.rationale), embedding(positives, rows.rationale)
    return softplus(row_dot(at_users, embedding(negatives, rows.z) - at_positives)).mean()


def _sum(terms: list[Tensor]) -> Tensor:
    return reduce(torch.add, terms)


class GFormer(TrainedModel):
    """A masked graph autoencoder, whose mask is drawn from learned attention.

    Use it as a baseline of the paper's comparison; it is the slowest to train of all methods here.
    """

    name = "gformer"
    title = "GFormer"
    paper = "Li et al., Graph Transformer for Recommendation, SIGIR 2023"
    network_class = GFormerNetwork
    settings: GFormerSettings
    ladder = {"uniformity": (0.01, 0.03, 0.1), "weight_decay": (1e-4, 3e-4, 1e-3)}
    search_space = {
        "num_layers": {"low": 1, "high": 6},
        "uniformity": {"low": 0.01, "high": 1.0, "log": True},
        "rationale": {"low": 0.1, "high": 10.0, "log": True},
        "independence": {"low": 1e-4, "high": 0.1, "log": True},
        "view_weight": {"low": 0.01, "high": 1.0, "log": True},
        "weight_decay": {"low": 3e-6, "high": 3e-2, "log": True},
    }

    @TrainedModel.takes(GFormerSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
