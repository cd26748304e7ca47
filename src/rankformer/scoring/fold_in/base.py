"""Embeddings of users who were not in the training data, from their histories, without training.

A rule splits the embedding of a user into a part for each item of the history and a rest that belongs to no item of it,
v_u = sum_e part_e + rest_u. The sum embeds a user; the split explains a score, for y_ui = v_u . v_i is linear in it.
Rules are made of plain tensors, so that a run folder can hold them.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rankformer.errors import DataError
from rankformer.scoring.histories import Histories


class Split(NamedTuple):
    """The embeddings of a batch of users as sums: v_u = sum of the parts of u's entries + rest_u.

    Attributes:
        parts: (h, d) what each entry brings.
        rest: (b, d) what no entry brings.
    """

    parts: Tensor
    rest: Tensor


class FoldIn(Protocol):
    """How a method embeds a user from a history.

    Attributes:
        rule: name of the rule in a run folder.
        explains: whether the parts say something of the items they belong to.
    """

    rule: ClassVar[str]
    explains: ClassVar[bool]

    @property
    def own_embedding(self) -> bool:
        """Whether training users also have a learned embedding of their own, which new users lack."""

    def split(self, histories: Histories) -> Split:
        """Return the users' embeddings as sums, in float64."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the rule, by name."""

    def metadata(self) -> dict[str, Any]:
        """Return its numbers and switches, as JSON can hold them."""

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Self:
        """Return the rule that `tensors` and `metadata` described."""


def embed(rule: FoldIn, histories: Histories) -> Tensor:
    """Return the embeddings of the users of a batch of histories, (b, d) float64."""
    rows = []
    for piece in histories.pieces() if histories.num_users else [histories]:  # none: one empty piece, for the shape
        parts, rest = rule.split(piece)
        rows.append(rest.index_add(0, piece.users, parts))
    return torch.cat(rows)


def check_tensors(tensors: dict[str, Tensor], num_items: int, dim: int) -> None:
    """Reject tensors of a rule that do not fit a model of m items and dimension d."""
    for name, value in tensors.items():
        if value.ndim != 2 or value.shape[0] not in (1, num_items) or value.shape[1] != dim:
            raise DataError(f"fold-in tensor {name} has shape {tuple(value.shape)}; expected ({num_items}, {dim})")
        if value.dtype not in (torch.float32, torch.float64) or not bool(torch.isfinite(value).all()):
            raise DataError(f"fold-in tensor {name} must hold finite numbers of 32 or 64 bits")
