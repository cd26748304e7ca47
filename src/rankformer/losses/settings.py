"""`LossSettings`: what the ranking losses can be given."""

from pydantic import Field

from rankformer.settings import Settings


class LossSettings(Settings):
    """Hyperparameters of the ranking losses; each loss reads those that it names, BPR none."""

    loss_temperature: float = Field(default=0.2, gt=0)
    """Temperature of a softmax loss: what cosines are divided by."""
    loss_negatives: int = Field(default=1024, ge=1)
    """Negatives of a softmax loss, shared by all users of a batch; at most as many as it has interactions."""
    loss_push: float = Field(default=1.0, ge=0)
    """Weight of the negatives' term of a softmax loss against the positives'; 1 is the softmax, others balance it."""
    loss_cutoff: int = Field(default=20, ge=1)
    """K of softmax-at-k: interactions count by how near they are to the user's K best items."""
    loss_cutoff_temperature: float = Field(default=1.0, gt=0)
    """Temperature of those weights in softmax-at-k; the smaller, the less an interaction below the K best counts."""
    norm_exponent: float = Field(default=0.0, ge=0)
    """Power of the length of an item's embedding in scores learned by a softmax loss; 0 scores by cosine."""
