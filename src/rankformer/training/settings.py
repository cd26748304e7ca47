"""Settings of the training loop and of embedding tables, inherited by every model trained by gradient."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.losses import RANKING_LOSSES, LossName
from rankformer.losses.settings import LossSettings
from rankformer.settings import TunedSettings

L2_LADDER = ("0.25*auto", "auto", "4*auto")  # what quick tuning tries
_AUTO = re.compile(r"(?:(\d+(?:\.\d+)?)\*)?auto")
_USUAL_DENSITY, _MOST_L2 = 5.0, 0.3


class TrainingSettings(TunedSettings, defaults={"tune": False}):
    """How a model is trained; the defaults are the paper's full-batch protocol.

    A method whose defaults were not seen to suit logs of every density has `tune` by default.
    """

    epochs: int = Field(default=2000, ge=1)
    """Most passes over the training interactions."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Learning rate of Adam."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the learning rate changes: not at all, or by cosine decay to 0 after the last epoch."""
    batch_size: int | None = Field(default=None, ge=1)
    """Interactions per step; none means all of them in one step."""
    batch_by: Literal["interactions", "users"] = "interactions"
    """What is in a mini-batch: single interactions, or users with all of theirs, whom a softmax loss scores once."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient over all parameters; longer gradients are scaled down to it."""
    validate_every: int = Field(default=20, ge=1)
    """Epochs between validations, and between checkpoints."""
    patience: int = Field(default=10, ge=1)
    """Validations without a better value before training stops."""
    metric: str = "ndcg@20"
    """Metric that chooses the best epoch on the validation part."""


class EmbeddingSettings(TrainingSettings):
    """Settings of a model with one learned embedding table, users and items alike."""

    embedding_dim: int = Field(default=64, ge=1)
    """Dimension d of the embeddings."""
    initialization: Literal["normal", "xavier-uniform", "xavier-normal", "spectral", "least-squares"] = "normal"
    """Initialization of the table: normal with standard deviation 0.1, Xavier's uniform or normal range, the leading
    singular vectors of the interaction matrix, or its weighted least-squares factors."""

    @property
    def item_norm_power(self) -> float:
        """The power of the length of an item's embedding in scores; 1 for inner products of final embeddings."""
        return 1.0


class RankingSettings(LossSettings, EmbeddingSettings):
    """Settings of a model whose table is trained by a ranking loss with L2 regularization."""

    loss: LossName = "bpr"
    """Ranking loss: BPR on inner products, or a softmax loss on cosines."""
    l2: float = Field(default=1e-4, ge=0)
    """L2 regularization of the learned embeddings, as they occur in a batch."""

    @property
    def item_norm_power(self) -> float:
        """The power of the length of an item's embedding in scores: 1 for inner products, 0 for cosines."""
        return self.norm_exponent if RANKING_LOSSES[self.loss].by_cosine else 1.0

    def l2_strength(self, graph: BipartiteGraph) -> float:
        """Return the L2 regularization of a training on these interactions."""
        del graph
        return self.l2


class DensitySettings(RankingSettings, defaults={"l2": "auto"}):
    """Settings of a model whose L2 regularization follows the density of the log unless it is given.

        auto = min(0.3, usual_l2 (5 / r)^density_power),   r = interactions per user or item that occurs

    The sparser the log, the more it takes: r is the number of interactions that each row of the table is learned from.
    The powers were chosen on the validation parts of logs with r from 1.3 to 16 (experiments/LOG.md). Somewhat above
    the bound a table that is all zeros has the smallest loss.
    """

    usual_l2: ClassVar[float] = 1e-4  # where r is 5
    density_power: ClassVar[float] = 2.4

    l2: float | str = "auto"  # type: ignore[assignment]
    """L2 regularization of the learned embeddings, as they occur in a batch: a number, auto for what suits the density
    of the log, or a multiple of that such as 4*auto."""

    @field_validator("l2", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if _AUTO.fullmatch(value):
            return value
        try:
            return float(value)
        except ValueError:
            raise ConfigError(f"l2={value[:80]!r}: expected a number, auto, or a multiple such as 4*auto") from None

    @field_validator("l2")
    @classmethod
    def _not_negative(cls, value: float | str) -> float | str:
        if isinstance(value, float) and value < 0:
            raise ConfigError(f"l2={value}: input should be greater than or equal to 0")
        return value

    def l2_strength(self, graph: BipartiteGraph) -> float:
        if not isinstance(self.l2, str):
            return self.l2
        factor = _AUTO.fullmatch(self.l2)
        assert factor is not None
        suited: float = self.usual_l2 * (_USUAL_DENSITY / graph.edges_per_node) ** self.density_power
        return min(_MOST_L2, float(factor[1] or 1) * suited)
