"""DualVAE: two variational autoencoders, of users and of items, that decode with each other's latents.

Guo et al., "DualVAE: Dual Disentangled Variational AutoEncoder for Recommendation", SDM 2024.

Every user has A latents theta_u,a, every item A latents beta_i,a, of dimension d. The user side, x_u a row of X:

    attention        w[a, i] = softmax over a of beta_i,a . c_a                         c_a: fixed random prototypes
    encoder          o_a = act( (x_u * w_a) W_1 + b_1 ),   mu_a = o_a W_m + b_m,   s_a = sigmoid( o_a W_s + b_s )
    latents          z_a = mu_a + s_a * noise
    reconstruction   Y_ui = sum_a R_a,   R_a = w[a, i] sigmoid( z_a . beta_i,a + tanh( f_u(z_a) . f_i(beta_i,a) ) )
    neighbourhood    v_a = sum_i R_a beta_i,a
    loss             L = kl_weight KL - mean_u sum_i [ x_ui ln(Y_ui + 1e-10) - Y_ui ] + cl_weight CL
    KL               1/A sum_a mean_u sum_d (mu^2 + s^2 - 1 - 2 ln s) / 2
    CL               -mean_u sum_a ln [ e(v_ua, z_ua) / ( sum_a' e(v_ua, z_ua') + sum_u' e(v_ua, z_u'a) ) ],
                     e(v, z) = exp( cos(v, z) / cl_temperature ), u' over the batch
    score            y_ui = sum_a w*[a, i] sigmoid( mu_u,a . mu_i,a + tanh( f_u(mu_u,a) . f_i(mu_i,a) ) )

f_u and f_i are a linear layer with the activation, all weights are shared by the aspects. The item side is the mirror
image, over columns of X and theta. An epoch trains the item side, in batches of items against constant theta, then the
user side against the new beta. After each step the batch is encoded once more and its samples z replace its theta or
beta, which thus are state and not parameters. In the end the means stand for the latents: those of items, then those of
users, whose attention is that of the last sampled beta; w* is the attention of the items' means. So a user outside the
training data is folded in by encoding the history, and a training user's history gives the trained means back.

Savings, all exact: the first layer is a sparse product; the second pass of a step is the encoder alone; attention and
f of the opposite side are computed once per phase; no array of size b x m is kept (`layers.dual_decoder`).

Departures from the authors' program, which was the reference, the paper's text being out of reach: s >= 1e-6 under the
logarithm; training stops on a validation part, while theirs runs all epochs. Users and items without an interaction,
which their program never sees, have latents and attention of 0: Y is 0 there, which adds nothing to a likelihood but
the multinomial, whose softmax still counts it, and such an item scores 0.
Like theirs, the prototypes c are never trained by default, though the program means them to be: `train_prototypes`. Its
batches are always the same, in a fixed order: `shuffle`. With the multinomial likelihood sigmoids are dropped, in the
score too, and a softmax over all columns is taken of Y. Duplicates count once.

Three settings are ours. `row_scale=root` divides what a row sums up to by the root of its size, as Mult-VAE (Liang et
al., WWW 2018) does, so that long rows do not drive the activation to its ends. `dropout` hides a fraction of a row from
its encoder in each training step, likewise. `initialization=least-squares` starts from weighted least-squares factors:
the encoders' weights are a regression of an entity's factors on the sum of its partners', so that first means are near
the factors, and a last latent is the level that makes sigmoid( z . beta ) small where factors say nothing.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.least_squares import least_squares_factors
from rankformer.graph.negatives import random_bits
from rankformer.graph.sparse_ops import edge_dot
from rankformer.initialization import LEAST_SQUARES
from rankformer.layers.aspects import ACTIVATIONS, BinaryRows, divided_by_root, weighted_rows
from rankformer.layers.dual_decoder import Opposite, decode, likelihood_of
from rankformer.layers.seeded import generator_of, uniform_linear
from rankformer.losses.l2 import weight_decay
from rankformer.losses.latent import aspect_contrast, divergence
from rankformer.models.trained import TrainedModel
from rankformer.scoring.aspect_scorer import AspectScorer, AspectTensors
from rankformer.training.network import Network
from rankformer.training.settings import TrainingSettings

_INITIAL, _NOISE, _REFRESH, _DROPOUT = range(4)  # streams of randomness
# Of the initialization from factors. Logit and level are near those of a logistic fit on two datasets.
_LOGIT = 6.0  # what factors add to the logit of a training interaction, on average
_RARER = 4.0  # by how much ones are rarer than on average where factors say nothing
_INPUT_SIZE = 0.15  # size of what the activation sees: so near 0 it is almost linear
_RANDOM_SCALE = 0.1  # of the random weights that stay beside the regression's
_SCALE_LOGIT = -4.0  # scale of the level under a sigmoid: it has hardly any noise


class DualVAESettings(
    TrainingSettings,
    defaults={
        "tune": True,
        "epochs": 10,
        "learning_rate": 5e-4,
        "schedule": "cosine",
        "batch_size": 128,
        "validate_every": 1,
        "patience": 5,
    },
):
    """Hyperparameters of DualVAE; the defaults are what validation chose (experiments/LOG.md).

    The authors': 500 epochs, learning_rate 1e-3, num_aspects 5, embedding_dim 20, hidden_dim and decoder_dim 40,
    kl_weight 1, row_scale sum, no dropout, initialization normal, no shuffle. An epoch is a pass over all items and all
    users, batch_size is of items or users, which are also each other's negatives in the contrastive loss.
    """

    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of the heads and decoders; the paper has none."""
    num_aspects: int = Field(default=1, ge=1)
    """Latents A of each user and item."""
    embedding_dim: int = Field(default=64, ge=1)
    """Dimension d of a latent."""
    hidden_dim: int = Field(default=64, ge=1)
    """Dimension h inside the encoders."""
    decoder_dim: int = Field(default=16, ge=1)
    """Dimension q of the decoders."""
    activation: Literal["tanh", "sigmoid", "relu", "elu"] = "tanh"
    """Activation of encoders and decoders."""
    likelihood: Literal["poisson", "bernoulli", "gaussian", "multinomial"] = "poisson"
    """How the reconstruction is compared with the row."""
    kl_weight: float = Field(default=0.5, ge=0)
    """Weight of the KL divergence of the latents from a standard normal distribution."""
    cl_weight: float = Field(default=0.01, ge=0)
    """Weight of the contrastive loss between latents and neighbourhoods."""
    cl_temperature: float = Field(default=0.2, gt=0)
    """Temperature of the contrastive loss."""
    train_prototypes: bool = False
    """Whether the aspects' prototypes are learned, or stay as drawn, as in the authors' program."""
    shuffle: bool = True
    """Whether each epoch puts users and items into other batches."""
    row_scale: Literal["sum", "root"] = "root"
    """What an encoder makes of a row's size: its entries are summed up, or their sum is divided by the size's root."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Fraction of a row's entries that its encoder does not see in a training step."""
    initialization: Literal["normal", "least-squares"] = "least-squares"
    """Initialization of the encoders: random weights, or weighted least-squares factors of the interaction matrix."""

    @model_validator(mode="after")
    def _factors_fit(self) -> Self:
        if self.initialization == "least-squares" and min(self.embedding_dim, self.hidden_dim) < 2:
            raise ConfigError(
                f"initialization='least-squares' needs embedding_dim and hidden_dim of at least 2, "
                f"not {self.embedding_dim} and {self.hidden_dim}"
            )
        return self


def aspect_attention(latents: Tensor, prototypes: Tensor) -> Tensor:
    """Return how much entities of latents (A, m, d) belong to each aspect, (A, m), summing to 1 over aspects."""
    return torch.bmm(latents, prototypes[:, :, None])[:, :, 0].softmax(0)


class Side(nn.Module):
    """The autoencoder of one side, `size` users or items from the first node on, and its current latents."""

    latents: Tensor

    def __init__(
        self, first: int, size: int, columns: int, settings: DualVAESettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.nodes = slice(first, first + size)
        a, d, h = settings.num_aspects, settings.embedding_dim, settings.hidden_dim
        layer = uniform_linear(columns, h, generator)
        self.table, self.bias = nn.Parameter(layer.weight.detach().T.contiguous()), layer.bias  # a row per column
        self.mean, self.scale = uniform_linear(h, d, generator), uniform_linear(h, d, generator)
        self.decoder = uniform_linear(d, settings.decoder_dim, generator)
        initial = (2 * torch.rand(a, d, generator=generator) - 1) / d**0.5
        self.prototypes = nn.Parameter(initial, requires_grad=settings.train_prototypes)
        self.register_buffer("latents", 0.01 * torch.randn(a, size, d, generator=generator))
        self.activation = ACTIVATIONS[settings.activation]
        self.by_root, self.dropout = settings.row_scale == "root", settings.dropout

    def encode(
        self, rows: BinaryRows, attention: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return means and scales of the rows' latents, (A, b, d) each, by the attention (A, m) of the opposite side.

        The generator draws what dropout hides; without one nothing is hidden.
        """
        looked_at, weights = rows, attention
        if self.dropout and generator is not None:
            chance = torch.rand(len(rows.columns), generator=generator).to(attention.device)
            looked_at, weights = rows.where(chance >= self.dropout), attention / (1 - self.dropout)
        sums = weighted_rows(looked_at, self.table, weights)
        hidden = self.activation((divided_by_root(sums, rows.ptr) if self.by_root else sums) + self.bias)
        return self.mean(hidden), torch.sigmoid(self.scale(hidden))

    def decode(self, latents: Tensor) -> Tensor:
        """Return f of latents, (A, b, q)."""
        return self.activation(self.decoder(latents))

    def seen(self, graph: BipartiteGraph) -> Tensor:
        """Return 1 for every node of the side that has an interaction and 0 for the others, (size,)."""
        return (graph.degree[self.nodes] > 0).to(self.latents.dtype)

    def rows(self, distinct: BipartiteGraph) -> BinaryRows:
        """Return the rows of all nodes of the side in a graph without parallel edges."""
        return BinaryRows.of(distinct, torch.arange(distinct.num_nodes, device=distinct.device)[self.nodes])


class DualVAENetwork(Network):
    """Both autoencoders; a batch is of users or of items, and moves the parameters of that side alone."""

    learns_from = "nodes"

    def __init__(self, num_users: int, num_items: int, settings: DualVAESettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.settings = settings
        generator = generator_of(settings.seed, 0, _INITIAL)
        self.users = Side(0, num_users, num_items, settings, generator)
        self.items = Side(num_users, num_items, num_users, settings, generator)
        self._graphs: tuple[BipartiteGraph, BipartiteGraph] | None = None
        self._phase: tuple[Side, Opposite, Tensor] | None = None

    def load_state_dict(self, *state: Any, **options: Any) -> Any:
        self._phase = None  # its constants belong to the state that is replaced
        return super().load_state_dict(*state, **options)

    def initialize(self, graph: BipartiteGraph) -> None:
        if self.settings.initialization == "least-squares":
            _initialize_from_factors(self, graph)

    def batches(self, graph: BipartiteGraph, epoch: int) -> Iterator[Tensor | None]:
        """Yield the nodes of each step of an epoch: all items that have an interaction, then all such users."""
        for side in (self.items, self.users):
            chosen = side.nodes.start + side.seen(graph).nonzero()[:, 0]
            if self.settings.shuffle:  # -epoch keeps clear of step numbers
                chosen = chosen[torch.argsort(random_bits(self.seed, -epoch, chosen), stable=True)]
            yield from torch.split(chosen, self.batch_size or len(chosen))

    def loss(self, graph: BipartiteGraph, batch: Batch) -> Tensor:
        settings = self.settings
        own, rows, _ = self._batch(graph, batch)
        other, attention = self._opposite(graph, own)
        mean, scale = own.encode(rows, attention, generator_of(batch.seed, batch.step, _DROPOUT))
        z = mean + scale * _noise(mean, batch, _NOISE)
        likelihood, v = decode(z, own.decode(z), attention, other, rows, likelihood_of(settings.likelihood))
        loss = settings.kl_weight * divergence(mean, scale) - likelihood
        if settings.cl_weight:
            loss = loss + settings.cl_weight * aspect_contrast(z, v, settings.cl_temperature)
        return loss + weight_decay(own, settings.weight_decay)

    def after_step(self, graph: BipartiteGraph, batch: Batch) -> None:
        # The latents of the batch become fresh samples from the encoder as it is now.
        with torch.no_grad():
            own, rows, positions = self._batch(graph, batch)
            mean, scale = own.encode(rows, self._opposite(graph, own)[1])
            own.latents[:, positions] = mean + scale * _noise(mean, batch, _REFRESH)

    def scorer(self, graph: BipartiteGraph) -> AspectScorer:
        users, items, settings = self.users, self.items, self.settings
        user_seen, item_seen = users.seen(graph), items.seen(graph)
        over_users = aspect_attention(users.latents, items.prototypes) * user_seen
        over_items = aspect_attention(items.latents, users.prototypes) * item_seen
        item_means = items.encode(items.rows(self._distinct(graph)), over_users)[0] * item_seen[:, None]
        user_means = users.encode(users.rows(self._distinct(graph)), over_items)[0] * user_seen[:, None]
        parts = AspectTensors(
            users=user_means,
            items=item_means,
            attention=aspect_attention(item_means, users.prototypes) * item_seen,
            user_weight=users.decoder.weight,
            user_bias=users.decoder.bias,
            item_weight=items.decoder.weight,
            item_bias=items.decoder.bias,
            encoder_attention=over_items,
            encoder_table=users.table,
            encoder_bias=users.bias,
            mean_weight=users.mean.weight,
            mean_bias=users.mean.bias,
        )
        bounded = settings.likelihood != "multinomial"
        return AspectScorer(parts, settings.activation, bounded, by_root=settings.row_scale == "root")

    def _batch(self, graph: BipartiteGraph, batch: Batch) -> tuple[Side, BinaryRows, Tensor]:
        """Return the side of a batch, its rows of X and its positions among the side's latents."""
        assert batch.nodes is not None
        own = self.users if int(batch.nodes[0]) < graph.num_users else self.items
        return own, BinaryRows.of(self._distinct(graph), batch.nodes), batch.nodes - own.nodes.start

    def _distinct(self, graph: BipartiteGraph) -> BipartiteGraph:
        if self._graphs is None or self._graphs[0] is not graph:
            self._graphs = graph, graph.distinct()
        return self._graphs[1]

    def _opposite(self, graph: BipartiteGraph, own: Side) -> tuple[Opposite, Tensor]:
        """Return what `own` decodes against and its attention (A, m), 0 for whoever has no interaction.

        All of it is constant until the opposite side is trained again, but for the attention of learned prototypes.
        """
        other = self.items if own is self.users else self.users
        seen = other.seen(graph)
        if self._phase is None or self._phase[0] is not own:
            with torch.no_grad():
                constant = Opposite(other.latents, other.decode(other.latents))
                self._phase = own, constant, aspect_attention(other.latents, own.prototypes) * seen
        _, constant, attention = self._phase
        if own.prototypes.requires_grad:
            attention = aspect_attention(constant.latents, own.prototypes) * seen
        return constant, attention


def _noise(like: Tensor, batch: Batch, stream: int) -> Tensor:
    """Return standard normal noise that depends on seed, step and stream alone."""
    return torch.randn(like.shape, generator=generator_of(batch.seed, batch.step, stream)).to(like)


def _initialize_from_factors(network: DualVAENetwork, graph: BipartiteGraph) -> None:
    """Set the encoders so that the means are near least-squares factors, and their level near the density of X."""
    settings, n = network.settings, graph.num_users
    dim = min(settings.hidden_dim, settings.embedding_dim) - 1  # the last latent is the level's
    factors = least_squares_factors(graph, dim, network.seed, **LEAST_SQUARES)
    found = edge_dot(graph, factors, factors).mean().clamp(min=1e-12)
    sizes = [side.square().mean().clamp(min=1e-12) for side in (factors[:n], factors[n:])]
    even = (sizes[1] / sizes[0]) ** 0.25  # users and items of equal length
    users, items = ((_LOGIT / found).sqrt() * each for each in (factors[:n] * even, factors[n:] / even))
    density = min(1.0, graph.num_edges / (n * graph.num_items))  # duplicates may be more than there are pairs
    level = math.sqrt(math.log(_RARER / density))
    with torch.no_grad():
        for own, target, other, sign in ((network.users, users, items, 1), (network.items, items, users, -1)):
            rows = own.rows(network._distinct(graph))
            sums = weighted_rows(rows, other, other.new_ones(1, len(other)))[0]
            sums = divided_by_root(sums, rows.ptr) if own.by_root else sums
            gram = sums.T @ sums
            gram.diagonal().add_(1e-3 * gram.diagonal().mean().clamp(min=1e-12))
            regression = torch.linalg.solve(gram, sums.T @ target)  # (dim, dim)
            scale = _INPUT_SIZE / (sums @ regression).square().mean().sqrt().clamp(min=1e-6)
            # Each of the A aspects sees about 1/A of a row's sum.
            own.table.mul_(_RANDOM_SCALE)[:, :dim] = ((other @ regression) * (scale * settings.num_aspects)).cpu()
            own.mean.weight.mul_(_RANDOM_SCALE)[:dim, :dim] += torch.eye(dim) / scale.cpu()
            own.mean.bias.zero_()[-1] = sign * level
            own.scale.weight.mul_(_RANDOM_SCALE)
            own.scale.bias.zero_()[-1] = _SCALE_LOGIT
            own.decoder.weight.mul_(_RANDOM_SCALE)
            own.bias.zero_()
        means = network.scorer(graph).parts  # what the item side, which is trained first, decodes against
        network.users.latents.copy_(means.users)
        network.items.latents.copy_(means.items)


class DualVAE(TrainedModel):
    """Two variational autoencoders, of users and of items, that decode with each other's latents.

    Use it as a baseline of the paper's comparison; it folds in new users by encoding their histories, and has no
    embeddings to export, since it scores by several latents per user and item.
    """

    name = "dualvae"
    title = "DualVAE"
    paper = "Guo et al., DualVAE: Dual Disentangled Variational AutoEncoder for Recommendation, SDM 2024"
    network_class = DualVAENetwork
    settings: DualVAESettings
    has_vectors = False
    ladder = {"kl_weight": (0.1, 0.5, 2.0), "dropout": (0.2, 0.5, 0.8)}
    search_space = {
        "likelihood": ["poisson", "multinomial"],
        "kl_weight": {"low": 0.03, "high": 10.0, "log": True},
        "cl_weight": {"low": 1e-3, "high": 0.1, "log": True},
        "row_scale": ["sum", "root"],
        "dropout": {"low": 0.0, "high": 0.8},
        "initialization": ["normal", "least-squares"],
        "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    }

    @TrainedModel.takes(DualVAESettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
