"""Fold-in rules without algebra of their own: a weighted sum of item embeddings, and a constant."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from rankformer.scoring.fold_in.base import Split
from rankformer.scoring.histories import Histories


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """v_u = d_u^-p sum_{e in u} t_i: propagation methods, for a user without an embedding of its own.

    Attributes:
        vectors: (m, d) t_i, what an item hands to each of its users.
        power: p, 1 for means and 1/2 for symmetric normalisation.
        own_embedding: whether training users have an embedding of their own on top.
    """

    rule: ClassVar[str] = "weighted-sum"
    explains: ClassVar[bool] = True
    vectors: Tensor
    power: float
    own_embedding: bool = False

    def split(self, histories: Histories) -> Split:
        """Return t_i / d_u^p for each entry, and no rest."""
        scale = histories.sizes.clamp(min=1).pow(-self.power)
        parts = self.vectors[histories.items].double() * scale[histories.users, None]
        return Split(parts, parts.new_zeros(histories.num_users, parts.shape[1]))

    def tensors(self) -> dict[str, Tensor]:
        """Return the item embeddings."""
        return {"vectors": self.vectors}

    def metadata(self) -> dict[str, Any]:
        """Return the power, and whether users have embeddings of their own."""
        return {"power": self.power, "own_embedding": self.own_embedding}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        return cls(tensors["vectors"], float(metadata["power"]), bool(metadata["own_embedding"]))


@dataclass(frozen=True, eq=False)
class Constant:
    """v_u = c: every user has the same embedding, whatever the history.

    Attributes:
        vector: (1, d) c.
    """

    rule: ClassVar[str] = "constant"
    explains: ClassVar[bool] = False
    own_embedding: ClassVar[bool] = False
    vector: Tensor

    def split(self, histories: Histories) -> Split:
        """Return nothing for the entries, and the vector as the rest."""
        rest = self.vector.double().expand(histories.num_users, -1)
        return Split(rest.new_zeros(len(histories.items), rest.shape[1]), rest)

    def tensors(self) -> dict[str, Tensor]:
        """Return the vector."""
        return {"vector": self.vector}

    def metadata(self) -> dict[str, Any]:
        """Return nothing: there are no numbers."""
        return {}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        del metadata
        return cls(tensors["vector"])
