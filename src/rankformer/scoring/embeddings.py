"""The one value that learning hands to answering: a vector for every user and every item."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rankformer.errors import DataError


@dataclass(frozen=True)
class Embeddings:
    """Vectors whose inner product is the score y_ui = z_u . z_i.

    Attributes:
        users: (n, d) one row per user index.
        items: (m, d) one row per item index.
    """

    users: Tensor
    items: Tensor

    def __post_init__(self) -> None:
        if self.users.ndim != 2 or self.items.ndim != 2 or self.users.shape[1] != self.items.shape[1]:
            raise DataError(
                f"embeddings must be two matrices of one width; found users {tuple(self.users.shape)} "
                f"and items {tuple(self.items.shape)}"
            )

    @property
    def num_users(self) -> int:
        """How many users there are."""
        return self.users.shape[0]

    @property
    def num_items(self) -> int:
        """How many items there are."""
        return self.items.shape[0]

    def scores(self, users: Tensor) -> Tensor:
        """Return the (len(users), m) scores of the given user indices over all items."""
        return self.users[users] @ self.items.T

    def detach(self) -> "Embeddings":
        """Return the same values cut from the autograd graph."""
        return Embeddings(self.users.detach(), self.items.detach())

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return bool(torch.isfinite(self.users).all() and torch.isfinite(self.items).all())
