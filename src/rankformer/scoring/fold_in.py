"""Vectors for users who were not in the training data, from what they have touched, without training.

A rule splits the vector of a user into a part for each item of the history and a rest that belongs to nobody in
particular, v_u = sum_e part_e + rest_u. The sum embeds a user; the split explains a score, for y_ui = v_u . v_i is
linear in it. Rules are made of plain tensors, so that a run folder can hold them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.errors import DataError

_ENTRIES_AT_ONCE = 1 << 16  # bounds the (entries, d) arrays that a batch of histories needs


class Histories(NamedTuple):
    """What a batch of users has touched; an item that is listed twice weighs twice.

    Attributes:
        users: (h,) row of each entry, ascending.
        items: (h,) its item index.
        num_users: b; some may have no entry.
    """

    users: Tensor
    items: Tensor
    num_users: int

    @classmethod
    def of(cls, users: NDArray[Any], items: NDArray[Any], num_users: int) -> "Histories":
        """Return the histories of (row, item) pairs, in any order."""
        order = np.argsort(users, kind="stable")
        rows, columns = (torch.from_numpy(values[order].astype(np.int64)) for values in (users, items))
        return cls(rows, columns, num_users)

    @property
    def sizes(self) -> Tensor:
        """(b,) entries of each user, float64."""
        return torch.bincount(self.users, minlength=self.num_users).double()

    def pieces(self) -> Iterator["Histories"]:
        """Yield the same users in order, in batches of bounded size; a user is never split."""
        ends = torch.cumsum(torch.bincount(self.users, minlength=self.num_users), 0)
        first_user = first_entry = 0
        while first_user < self.num_users:
            fitting = int(torch.searchsorted(ends, first_entry + _ENTRIES_AT_ONCE, right=True))
            last_user = max(first_user + 1, min(fitting, first_user + _ENTRIES_AT_ONCE))
            last_entry = int(ends[last_user - 1])
            entries = slice(first_entry, last_entry)
            yield Histories(self.users[entries] - first_user, self.items[entries], last_user - first_user)
            first_user, first_entry = last_user, last_entry


class Split(NamedTuple):
    """The vectors of a batch of users, taken apart: v_u = sum of the parts of u's entries + rest_u.

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
    def own_row(self) -> bool:
        """Whether training users also have a learned vector of their own, which nobody else can have."""

    def split(self, histories: Histories) -> Split:
        """Return the users' vectors taken apart, in float64."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the rule, by name."""

    def numbers(self) -> dict[str, Any]:
        """Return its numbers and switches, as JSON can hold them."""

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> Self:
        """Return the rule that `tensors` and `numbers` described."""


def embed(rule: FoldIn, histories: Histories) -> Tensor:
    """Return the vectors of the users of a batch of histories, (b, d) float64."""
    rows = []
    for piece in histories.pieces() if histories.num_users else [histories]:  # none: one empty piece, for the shape
        parts, rest = rule.split(piece)
        rows.append(rest.index_add(0, piece.users, parts))
    return torch.cat(rows)


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """v_u = d_u^-p sum_{e in u} t_i: propagation methods, for a user whose own row is zero.

    Attributes:
        vectors: (m, d) t_i, what an item hands to each of its users.
        power: p, 1 for means and 1/2 for symmetric normalisation.
        own_row: whether training users have a row of their own on top.
    """

    rule: ClassVar[str] = "weighted-sum"
    explains: ClassVar[bool] = True
    vectors: Tensor
    power: float
    own_row: bool = False

    def split(self, histories: Histories) -> Split:
        """Return t_i / d_u^p for each entry, and no rest."""
        scale = histories.sizes.clamp(min=1).pow(-self.power)
        parts = self.vectors[histories.items].double() * scale[histories.users, None]
        return Split(parts, parts.new_zeros(histories.num_users, parts.shape[1]))

    def tensors(self) -> dict[str, Tensor]:
        """Return the item vectors."""
        return {"vectors": self.vectors}

    def numbers(self) -> dict[str, Any]:
        """Return the power, and whether there are rows of users' own."""
        return {"power": self.power, "own_row": self.own_row}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        return cls(tensors["vectors"], float(numbers["power"]), bool(numbers["own_row"]))


@dataclass(frozen=True, eq=False)
class Constant:
    """v_u = c: every user has the same vector, whatever the history.

    Attributes:
        vector: (1, d) c.
    """

    rule: ClassVar[str] = "constant"
    explains: ClassVar[bool] = False
    own_row: ClassVar[bool] = False
    vector: Tensor

    def split(self, histories: Histories) -> Split:
        """Return nothing for the entries, and the vector as the rest."""
        rest = self.vector.double().expand(histories.num_users, -1)
        return Split(rest.new_zeros(len(histories.items), rest.shape[1]), rest)

    def tensors(self) -> dict[str, Tensor]:
        """Return the vector."""
        return {"vector": self.vector}

    def numbers(self) -> dict[str, Any]:
        """Return nothing: there are no numbers."""
        return {}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        del numbers
        return cls(tensors["vector"])


def check_tensors(tensors: dict[str, Tensor], num_items: int, width: int) -> None:
    """Refuse tensors of a rule that do not fit a model of m items and width d."""
    for name, value in tensors.items():
        if value.ndim != 2 or value.shape[0] not in (1, num_items) or value.shape[1] != width:
            raise DataError(f"fold-in tensor {name} has shape {tuple(value.shape)}; expected ({num_items}, {width})")
        if value.dtype not in (torch.float32, torch.float64) or not bool(torch.isfinite(value).all()):
            raise DataError(f"fold-in tensor {name} must hold finite numbers of 32 or 64 bits")
