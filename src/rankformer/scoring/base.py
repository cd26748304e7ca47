"""`Scorer`: the one protocol between learning and answering.

A scorer gives every user a score for every item. What else it can do differs from method to method, and it says so:
score new users by their histories, split a score into contributions, compare items. It is made of tensors and a few
numbers, so that a run folder can hold it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, NotSupportedError
from rankformer.scoring.histories import Histories

if TYPE_CHECKING:
    from rankformer.scoring.embeddings import Embeddings

MOST = 1e15  # magnitude of the numbers of a scorer


class ScoreMatrix(ABC):
    """Scores of all items for a batch of rows: what `top_k` ranks."""

    @property
    @abstractmethod
    def num_items(self) -> int:
        """The number m of columns."""

    @abstractmethod
    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        """Return a (len(users), m) matrix that the caller may overwrite; -inf means never to be returned.

        Args:
            users: (b,) row numbers.
            out: (b, m) of `score_buffer`; where given it is overwritten and returned.
        """

    def score_buffer(self, rows: int) -> Tensor | None:
        """Return a (rows, m) buffer that `scores` can write to; None where it allocates its result itself."""
        del rows
        return None


class GivenScores(ScoreMatrix):
    """Scores that are there already: the rows of a (b, m) tensor."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    @property
    def num_items(self) -> int:
        return self.values.shape[1]

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        del out
        return self.values[users]


class SomeRows(ScoreMatrix):
    """The scores of some rows of another matrix, in their order."""

    def __init__(self, matrix: ScoreMatrix, rows: Tensor) -> None:
        self.matrix, self.rows = matrix, rows

    @property
    def num_items(self) -> int:
        return self.matrix.num_items

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        return self.matrix.scores(self.rows[users], out)


class Contributions(NamedTuple):
    """One score as a sum: score = sum of the items' + the user's + the global contribution."""

    score: float  # the score that is explained
    items: NDArray[np.float64]  # (h,) contribution of each entry of the history
    user: float  # contribution of the user's own learned embedding; 0 for methods and users without one
    overall: float  # global contribution, of everything else
    members: Mapping[str, float] | None = None  # the same score as a sum over the methods of a blend


class Scorer(ScoreMatrix):
    """Scores of n users and m items.

    Attributes:
        kind: name of the scorer in a run folder.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def num_users(self) -> int:
        """The number n of users."""

    @property
    def can_fold_in(self) -> bool:
        """Whether `for_histories` works."""
        return False

    @property
    def can_explain(self) -> bool:
        """Whether `contributions` works and has contributions of items."""
        return False

    @property
    def can_compare_items(self) -> bool:
        """Whether `similarities` works."""
        return False

    def for_histories(self, histories: Histories) -> "Scorer":
        """Return the scorer whose users are new users with these histories, in order."""
        del histories
        raise NotSupportedError(
            "this model cannot score new users: it learns an embedding for each user by itself; "
            "train a method that builds users from items, such as rankformer or lightgcn"
        )

    def contributions(self, history: Histories, item: int, user: int | None) -> Contributions:
        """Return the score of an item, split over a history.

        Args:
            history: of one user.
            item: index of the item.
            user: index of the training user whose history it is, None for a new user.
        """
        del history, item, user
        raise NotSupportedError(
            "this model's scores are not a sum over a user's history, so they cannot be explained; "
            "train a method that builds users from items, such as rankformer or lightgcn"
        )

    def as_embeddings(self) -> "Embeddings":
        """Return the same scores as inner products of vectors.

        Raises:
            NotSupportedError: they are none.
        """
        raise NotSupportedError(f"{type(self).__name__} scores without embeddings; this needs embeddings")

    @property
    def left_out_of_fold_in(self) -> tuple[str, ...]:
        """The members of a blend that `for_histories` leaves out, since they cannot score new users."""
        return ()

    def similarities(self, item: int) -> Tensor:
        """Return how similar each item is to one item, (m,); -inf where an item is similar to nothing."""
        raise NotSupportedError(f"{type(self).__name__} has neither item embeddings nor item weights to compare")

    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(torch.isfinite(values).all()) for values in self.tensors().values())

    @abstractmethod
    def cpu(self) -> Self:
        """Return the same scorer in main memory, cut from the autograd graph."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that make up the scorer, by name."""

    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Return the kind and every number and switch, as JSON can hold them."""

    @classmethod
    @abstractmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], history: Interactions) -> Self:
        """Return the scorer that `tensors` and `metadata` described, every number and index checked.

        Args:
            tensors: by name.
            metadata: as JSON gave it back.
            history: the training interactions.

        Raises:
            DataError: they do not fit together or the history, or hold a number that cannot be.
        """


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a scorer: a frozen dataclass whose tensors, numbers and switches are what a run folder holds of it."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.type is Tensor}

    def metadata(self) -> dict[str, Any]:
        """Return the numbers and switches, as JSON can hold them."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.type in (bool, float)}


def stored_number(metadata: Mapping[str, Any], name: str, kind: Any) -> Any:
    """Return a stored switch (`kind` bool) or number (float) of a scorer, or reject it by its name."""
    value = metadata[name]
    if kind is bool and isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST:
        return float(value)
    expected = "true or false" if kind is bool else f"a number of at most {MOST:g}"
    raise DataError(f"the scorer's {name} is {str(value)[:40]!r}; expected {expected}")


def check_tensor(values: Tensor, name: str, shape: tuple[int, ...], *types: torch.dtype) -> Tensor:
    """Return a stored tensor of the given shape and one of the types (float32 by default), or reject it by its name."""
    if tuple(values.shape) != shape:
        raise DataError(f"the scorer's {name} has shape {tuple(values.shape)}; expected {shape}")
    allowed = types or (torch.float32,)
    if values.dtype not in allowed or not bool(torch.isfinite(values).all()):
        expected = " or ".join(str(each).removeprefix("torch.") for each in allowed)
        raise DataError(f"the scorer's {name} must hold finite numbers of type {expected}; found {values.dtype}")
    return values
