"""Settings of the training loop and of embedding tables, inherited by every model trained by gradient."""

from typing import Literal

from pydantic import Field

from rankformer.losses import RANKING_LOSSES, LossName
from rankformer.losses.settings import LossSettings
from rankformer.settings import ModelSettings


class TrainingSettings(ModelSettings):
    """How a model is trained; the defaults are the paper's full-batch protocol."""

    epochs: int = Field(default=2000, ge=1)
    """Most passes over the training interactions."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Learning rate of Adam."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the learning rate changes: not at all, or by cosine decay to 0 after the last epoch."""
    batch_size: int | None = Field(default=None, ge=1)
    """Interactions per step; none means all of them in one step."""
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
