"""`Embeddings`: a vector for every user and every item, whose inner product is the score."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.scoring.base import Contributions, Scorer
from rankformer.scoring.fold_in import FOLD_IN_RULES, FoldIn, check_tensors, embed
from rankformer.scoring.histories import Histories


@dataclass(frozen=True, eq=False)
class Embeddings(Scorer):
    """y_ui = z_u . z_i.

    Attributes:
        users: (n, d) one row per user index.
        items: (m, d) one row per item index.
        fold_in: how a new user is embedded from a history, None where the method has no such rule.
    """

    kind: ClassVar[str] = "embeddings"
    can_compare_items = True
    users: Tensor
    items: Tensor
    fold_in: FoldIn | None = None

    def __post_init__(self) -> None:
        if self.users.ndim != 2 or self.items.ndim != 2 or self.users.shape[1] != self.items.shape[1]:
            raise DataError(
                f"embeddings must be two matrices of one dimension; found users {tuple(self.users.shape)} "
                f"and items {tuple(self.items.shape)}"
            )

    @property
    def num_users(self) -> int:
        return self.users.shape[0]

    @property
    def num_items(self) -> int:
        return self.items.shape[0]

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.mm(self.users[users], self.items.T, out=out)

    def score_buffer(self, rows: int) -> Tensor:
        # Allocating fresh pages for every block of users was measured to take several times as long as the product.
        return self.items.new_empty((rows, self.num_items))

    @property
    def can_fold_in(self) -> bool:
        return self.fold_in is not None

    @property
    def can_explain(self) -> bool:
        return self.fold_in is not None and self.fold_in.explains

    def for_histories(self, histories: Histories) -> Scorer:
        if self.fold_in is None:
            return super().for_histories(histories)
        return Embeddings(embed(self.fold_in, histories).to(self.items.dtype), self.items, self.fold_in)

    def contributions(self, history: Histories, item: int, user: int | None) -> Contributions:
        if self.fold_in is None or not self.fold_in.explains:
            return super().contributions(history, item, user)
        target = self.items[item].double()
        split = self.fold_in.split(history)
        items, overall = (split.parts @ target).numpy(), float(split.rest[0] @ target)
        folded = float(items.sum()) + overall
        if user is None:
            return Contributions(folded, items, 0.0, overall)
        score = float(self.users[user].double() @ target)
        return Contributions(score, items, score - folded if self.fold_in.own_embedding else 0.0, overall)

    def as_embeddings(self) -> "Embeddings":
        return self

    def similarities(self, item: int) -> Tensor:
        """Return the cosine of each item with one; a zero embedding is similar to nothing."""
        units = self._unit_items
        values = (units[item : item + 1] @ units.T)[0]
        nothing = (units == 0).all(dim=1)
        return values.masked_fill_(nothing | nothing[item], float("-inf"))

    @cached_property
    def _unit_items(self) -> Tensor:
        """The item embeddings at length 1, zero embeddings left zero, (m, d)."""
        return torch.nn.functional.normalize(self.items.detach(), dim=1)

    def cpu(self) -> "Embeddings":
        return Embeddings(self.users.detach().cpu(), self.items.detach().cpu(), self.fold_in)

    def tensors(self) -> dict[str, Tensor]:
        """Return users and items, and the tensors of the fold-in rule as fold_in.NAME."""
        rule = {} if self.fold_in is None else self.fold_in.tensors()
        return {"users": self.users, "items": self.items} | {f"fold_in.{name}": value for name, value in rule.items()}

    def metadata(self) -> dict[str, Any]:
        rule = self.fold_in
        return {"kind": self.kind, "fold_in": None if rule is None else {"rule": rule.rule, **rule.metadata()}}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], history: Interactions) -> "Embeddings":
        del history  # the recommender compares the numbers of users and items with its ids
        embeddings = cls(tensors["users"], tensors["items"])
        kinds = {embeddings.users.dtype, embeddings.items.dtype}
        if kinds not in ({torch.float32}, {torch.float64}) or not embeddings.is_finite():
            raise DataError("embeddings must be finite numbers, all of 32 or all of 64 bits")
        sides = embeddings.users, embeddings.items
        users, items = (float(side.abs().max()) if side.numel() else 0.0 for side in sides)
        if users * items * embeddings.users.shape[1] > torch.finfo(embeddings.users.dtype).max:
            raise DataError(f"embeddings of up to {users:g} and {items:g} give scores that are not finite")
        record = metadata.get("fold_in")
        if record is None:
            return embeddings
        if not isinstance(record, dict) or record.get("rule") not in FOLD_IN_RULES:
            raise DataError(f"its fold-in rule is none of {', '.join(FOLD_IN_RULES)}")
        prefix = "fold_in."
        parts = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        check_tensors(parts, embeddings.num_items, embeddings.items.shape[1])
        try:
            rule = FOLD_IN_RULES[record["rule"]].restore(parts, record)
        except TypeError as error:
            raise DataError(f"its fold-in rule is incomplete: {error}") from error
        return cls(embeddings.users, embeddings.items, rule)
