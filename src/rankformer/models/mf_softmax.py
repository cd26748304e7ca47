"""MF-softmax: a free embedding for every user and item, trained by sampled softmax over cosines.

Wu et al., "On the Effectiveness of Sampled Softmax Loss for Item Recommendation", TOIS 2024.

    loss     -x_u . x_i / t + log sum_{j in J} exp(x_u . x_j / t)     per interaction, x = z / |z| (`losses.softmax`)
    score    y_ui = z_u . x_i |z_i|^kappa

Learned: one table z of (n+m) x d, by mini-batches of users with all of their interactions. The loss does not see
lengths: an item keeps about that of its least-squares factor, which the table starts from and which is the longer the
more popular the item is. So kappa, `norm_exponent`, decides how much popularity counts; 0 is the paper's cosine, and
`auto` chooses among EXPONENTS on the validation part: at each validation the one so far or one beside it, 0.5 at first.

A new user is embedded by the second-order expansion of the same loss around x_u = 0, where xbar and C are mean and
covariance of the items' x and the constraint |x_u| = 1 adds a multiple of the identity:

    (C + lambda I) x_u = 1/d_u sum_{i in N_u} x_i - xbar

Of a few lambda the one is taken whose embeddings of the training users are most like those that they learned
(`models.fold_in_rules`). Departures from the paper: Adam with cosine decay from least-squares factors in place of
a random table, kappa, and no L2 regularization.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.fold_in_rules import expansion_rule
from rankformer.models.matrix_factorization import MatrixFactorizationNetwork
from rankformer.models.trained import TrainedModel
from rankformer.scoring.base import Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import WeightedSum
from rankformer.training.context import FitContext, Validate
from rankformer.training.settings import RankingSettings

AUTO, USUAL_EXPONENT, EXPONENTS = "auto", 0.5, (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)


class MFSoftmaxSettings(
    RankingSettings,
    defaults={
        "tune": True,
        "epochs": 20,
        "learning_rate": 0.005,
        "schedule": "cosine",
        "batch_size": 16384,
        "batch_by": "users",
        "validate_every": 4,
        "initialization": "least-squares",
        "loss_temperature": 0.25,
        "l2": 0.0,
    },
):
    """Hyperparameters of MF-softmax; the defaults were chosen on validation (experiments/LOG.md)."""

    least_batches: int = Field(default=1, ge=1)
    """Least mini-batches of an epoch: those of a log that is too small for them at `batch_size` are smaller."""
    loss: Literal["softmax", "softmax-at-k"] = "softmax"
    """Ranking loss: sampled softmax, or the same with interactions weighted by their nearness to the user's K best."""
    norm_exponent: float | str = AUTO  # type: ignore[assignment]
    """Power of the length of an item's embedding in scores; 0 scores by cosine, auto chooses on the validation part."""

    @field_validator("norm_exponent", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        try:
            found = AUTO if value == AUTO else float(value)
        except (TypeError, ValueError):
            found = -1.0
        if isinstance(found, float) and not found >= 0:
            raise ConfigError(f"norm_exponent={str(value)[:80]!r}: expected a number from 0, or auto")
        return found

    @property
    def item_norm_power(self) -> float:
        return USUAL_EXPONENT if isinstance(self.norm_exponent, str) else self.norm_exponent


class MFSoftmaxNetwork(MatrixFactorizationNetwork):
    """The learned table, and the power of the items' lengths in scores."""

    exponent: Tensor  # () kappa

    def __init__(self, num_users: int, num_items: int, settings: MFSoftmaxSettings) -> None:
        super().__init__(num_users, num_items, settings)
        self.chooses, self.metric = settings.norm_exponent == AUTO, settings.metric
        self.least_batches = settings.least_batches
        self.register_buffer("exponent", torch.tensor(settings.item_norm_power, dtype=torch.float64))

    def batches(self, graph: BipartiteGraph, epoch: int) -> Iterator[Tensor | None]:
        self.batch_size = min(self.batch_size or graph.all_edges, max(1, graph.all_edges // self.least_batches))
        return super().batches(graph, epoch)

    def scorer(self, graph: BipartiteGraph) -> Embeddings:
        self.item_norm_power = float(self.exponent)
        return super().scorer(graph)

    def validated(self, graph: BipartiteGraph, validate: Validate, scorer: Scorer) -> dict[str, float]:
        """Return the metrics with the power of lengths that is the best here: the one so far or one beside it."""
        if not self.chooses:
            return validate(scorer)
        at = EXPONENTS.index(float(self.exponent))
        found = {EXPONENTS[at]: validate(scorer)}
        for near in EXPONENTS[max(0, at - 1) : at + 2]:
            if near not in found:
                self.exponent.fill_(near)
                with torch.no_grad():
                    found[near] = validate(self.scorer(graph))
        best = max(found, key=lambda each: found[each][self.metric])
        self.exponent.fill_(best)
        return found[best]

    def fold_in(self, graph: BipartiteGraph) -> WeightedSum:
        return expansion_rule(graph, self.table)


class MFSoftmax(TrainedModel):
    """A free embedding for every user and item, trained by sampled softmax over cosines.

    Use it on logs of every density when a minute of training must do; it folds in new users.
    """

    name = "mf-softmax"
    title = "MF-softmax"
    paper = "Wu et al., On the Effectiveness of Sampled Softmax Loss for Item Recommendation, TOIS 2024"
    network_class = MFSoftmaxNetwork
    network: MFSoftmaxNetwork
    settings: MFSoftmaxSettings
    uses_weights = True
    ladder = {"loss_temperature": (0.1, 0.15, 0.25, 0.4)}
    search_space = {
        "loss_temperature": {"low": 0.05, "high": 0.5, "log": True},
        "norm_exponent": {"low": 0.0, "high": 1.0},
    }

    @TrainedModel.takes(MFSoftmaxSettings)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def learn(self, graph: BipartiteGraph, context: FitContext) -> Scorer:
        scorer = super().learn(graph, context)
        choices = context.choices or {}
        if "norm_exponent" not in choices:
            return scorer
        self.network.exponent.fill_(choices["norm_exponent"])
        with torch.no_grad():
            return self.network.final_scorer(graph)

    def choices(self) -> dict[str, Any]:
        """Return the number of epochs until the best validation, and the power of lengths that was best there."""
        return {**super().choices(), "norm_exponent": float(self.network.exponent)}
