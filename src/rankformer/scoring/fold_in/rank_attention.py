"""Rankformer's fold-in: the user's side of each layer against frozen item states.

A user's row never enters its own first row: the warm-up sums rows of items. Each layer then needs, beside the user's
own row, only the items' rows V_i of that layer and sums over all items. So with those rows frozen a user is embedded by
running the user's half of the layers (`rankformer.layers.rank_attention` has the algebra and the letters):

    v_u <- (1 - tau) v_u + tau y_u / C_u
    y_u = sum_{e in u} omega+_e v_i  +  [ g_u x_u M - r_u s_V - sum_{e in u} omega-_e v_i ]
          the history's part            the global part: all items outside the history

For a training user whose history is complete that is the computation which made the trained row, so it gives it back.
With the weights held at their values v_u is linear in the rows of its items; unrolled over the layers,

    v_u^L = sum_l (1 - tau)^(L-1-l) tau / C_u^l ( sum_e omega+_e^l v_i^l + global^l )  +  (1 - tau)^L v_u^0 .
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from rankformer.errors import DataError
from rankformer.layers.rank_attention import inverse_normalizer, safe_inverse_, user_constants, user_terms
from rankformer.layers.rank_weights import RankWeights
from rankformer.scoring.fold_in.base import Split
from rankformer.scoring.fold_in.simple import WeightedSum
from rankformer.scoring.histories import Histories


@dataclass(frozen=True, eq=False)
class RankFoldIn:
    """The user's half of a stack of Rankformer layers.

    Attributes:
        start: the warm-up, which makes the users' first embeddings from the items'.
        states: L item states (m, d), the input of each layer.
        weights: the terms of Omega.
        tau: step size of a layer.
    """

    rule: ClassVar[str] = "rank-attention"
    explains: ClassVar[bool] = True
    own_embedding: ClassVar[bool] = False
    start: WeightedSum
    states: tuple[Tensor, ...]
    weights: RankWeights
    tau: float

    def split(self, histories: Histories) -> Split:
        """Return the histories' and the global part of each user's final embedding."""
        parts, rest = self.start.split(histories)
        for layer in self._layers:
            current = rest.index_add(0, histories.users, parts)  # (b, d) the users' embeddings in this layer
            step_parts, step_rest = layer.step(current, histories, self.weights)
            parts = parts.mul_(1 - self.tau).add_(step_parts, alpha=self.tau)
            rest = rest.mul(1 - self.tau).add_(step_rest, alpha=self.tau)
        return Split(parts, rest)

    @cached_property
    def _layers(self) -> list["_Layer"]:
        return [_Layer.of(state) for state in self.states]

    def tensors(self) -> dict[str, Tensor]:
        """Return the start and the states, as start and layer.0, layer.1, ..."""
        return {"start": self.start.vectors} | {f"layer.{number}": state for number, state in enumerate(self.states)}

    def metadata(self) -> dict[str, Any]:
        """Return the step size, the terms of Omega and the warm-up's power."""
        return {"tau": self.tau, "power": self.start.power, "weights": asdict(self.weights)}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        names = [f"layer.{number}" for number in range(len(tensors) - 1)]
        if set(tensors) != {"start", *names}:
            raise DataError(f"fold-in tensors must be start, layer.0, layer.1, ...; found {', '.join(sorted(tensors))}")
        start = WeightedSum(tensors["start"], float(metadata["power"]))
        weights = RankWeights(**metadata["weights"])
        return cls(start, tuple(tensors[name] for name in names), weights, float(metadata["tau"]))


class _Layer(NamedTuple):
    """The item side of one layer."""

    items: Tensor  # (m, d) v_i
    inv_norm: Tensor  # (m,) 1 / |v_i|, 0 for a zero embedding
    gram: Tensor  # (d, d) M = X_i^T V_i
    s_x: Tensor  # (d,) sum_i x_i
    s_v: Tensor  # (d,) sum_i v_i

    @classmethod
    def of(cls, items: Tensor) -> "_Layer":
        rows = items.double()
        inv_norm = safe_inverse_(torch.linalg.vector_norm(rows, dim=1))
        units = rows * inv_norm[:, None]
        return cls(items, inv_norm, units.T @ rows, units.sum(0), rows.sum(0))

    def step(self, v: Tensor, histories: Histories, weights: RankWeights) -> Split:
        """Return omega+_e v_i / C_u for each entry (h, d) and the global part of y_u / C_u (b, d)."""
        users = histories.users
        k = user_constants(histories.sizes, len(self.items), weights, torch.float64)
        x = v * (safe_inverse_(torch.linalg.vector_norm(v, dim=1)) * float(weights.similarity))[:, None]  # (b, d)
        items = self.items[histories.items].double()  # (h, d)
        s = (x[users] * items).sum(1) * self.inv_norm[histories.items]  # (h,)

        def sum_entries(values: Tensor) -> Tensor:
            return torch.zeros(histories.num_users, dtype=values.dtype).index_add_(0, users, values)

        t = user_terms(s, x @ self.s_x, k, weights, lambda values: values[users], sum_entries)
        inv_c = inverse_normalizer(sum_entries(t.omega_pos.abs()), t.sum_neg, weights)
        rest = (k.g[:, None] * x) @ self.gram - t.r[:, None] * self.s_v
        rest = rest.index_add(0, users, t.omega_neg[:, None] * items, alpha=-1)
        return Split(items * (t.omega_pos * inv_c[users])[:, None], rest * inv_c[:, None])
