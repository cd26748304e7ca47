"""Settings of the methods with a contrastive loss between two noisy views: XSimGCL and Rankformer-CL."""

from typing import Any, Literal

from pydantic import Field

from rankformer.training.settings import RankingSettings

CONTRASTIVE_SPACE: dict[str, Any] = {
    "initialization": ["normal", "xavier-uniform", "spectral", "least-squares"],
    "cl_weight": {"low": 0.01, "high": 1.0, "log": True},
    "cl_noise": {"low": 0.02, "high": 0.5, "log": True},
    "cl_temperature": {"low": 0.05, "high": 0.5, "log": True},
}


class ContrastiveSettings(RankingSettings, defaults={"batch_size": 2048, "schedule": "cosine", "validate_every": 1}):
    """How a contrastive method is trained: by mini-batches, whose nodes are each other's negatives.

    With batch_size none the contrastive loss is quadratic in the users and items.
    """

    cl_weight: float = Field(default=0.05, ge=0)
    """Weight lambda_cl of the contrastive loss."""
    cl_noise: float = Field(default=0.1, ge=0)
    """Length eps_cl of the noise that training adds to each embedding after each propagation."""
    cl_temperature: float = Field(default=0.15, gt=0)
    """Temperature tau_cl of the contrastive loss."""
    l2_on: Literal["initial", "final"] = "initial"
    """What l2 weighs: squares of the learned embeddings of u, i, j, or SELFRec's norms of the final ones of u, i."""
