"""The knobs of the training loop, inherited by the settings of every model trained by gradient."""

from typing import Literal

from pydantic import Field

from rankformer.settings import Settings


class TrainingSettings(Settings):
    """How a model is trained; the defaults are the paper's full-batch protocol."""

    epochs: int = Field(default=2000, ge=1)
    """Most passes over the training pairs."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the step size changes: not at all, or along half a cosine that reaches 0 after the last epoch."""
    l2: float = Field(default=1e-4, ge=0)
    """Weight of the squared length of the learned rows, as they occur in a batch."""
    batch_size: int | None = Field(default=None, ge=1)
    """Pairs per step; none means all pairs in one step."""
    clip_norm: float | None = Field(default=None, gt=0)
    """Longest gradient, over all parameters together, that a step uses as it is; longer ones are shortened to it."""
    validate_every: int = Field(default=20, ge=1)
    """Epochs between validations, and between checkpoints."""
    patience: int = Field(default=10, ge=1)
    """Validations without a better value before training stops."""
    metric: str = "ndcg@20"
    """What the best validation is chosen by."""
