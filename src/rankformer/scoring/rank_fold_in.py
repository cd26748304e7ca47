"""Rankformer's fold-in: the user's side of each layer against frozen item states.

A user's row never enters its own first row: the warm-up sums rows of items. Each layer then needs, beside the user's
own row, only the items' rows V_i of that layer and sums over all items. So with those rows frozen a user is embedded by
running the user's half of the layers (`rankformer.layers.rank_attention` has the algebra and the letters):

    v_u <- (1 - tau) v_u + tau y_u / C_u
    y_u = sum_{e in u} omega+_e v_i  +  [ g_u x_u M - r_u s_V - sum_{e in u} omega-_e v_i ]
          the history's part            the crowd's part: all items the user has not touched

For a training user whose history is complete that is the computation which made the trained row, so it gives it back.
With the weights held at their values v_u is linear in the rows of its items; unrolled over the layers,

    v_u^L = sum_l (1 - tau)^(L-1-l) tau / C_u^l ( sum_e omega+_e^l v_i^l + crowd^l )  +  (1 - tau)^L v_u^0 .
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from rankformer.errors import DataError
from rankformer.layers.rank_weights import RankWeights
from rankformer.scoring.fold_in import Histories, Split, WeightedSum


@dataclass(frozen=True, eq=False)
class RankFoldIn:
    """The user's half of a stack of Rankformer layers.

    Attributes:
        start: the warm-up, which makes the users' first rows from the items'.
        states: L item states (m, d), the input of each layer.
        weights: the terms of Omega.
        tau: step size of a layer.
    """

    rule: ClassVar[str] = "rank-attention"
    explains: ClassVar[bool] = True
    own_row: ClassVar[bool] = False
    start: WeightedSum
    states: tuple[Tensor, ...]
    weights: RankWeights
    tau: float

    def split(self, histories: Histories) -> Split:
        """Return the histories' and the crowd's share of each user's last row."""
        parts, rest = self.start.split(histories)
        for layer in self._layers:
            current = rest.index_add(0, histories.users, parts)  # (b, d) the users' rows in this layer
            step_parts, crowd = layer.step(current, histories, self.weights)
            parts = parts.mul_(1 - self.tau).add_(step_parts, alpha=self.tau)
            rest = rest.mul(1 - self.tau).add_(crowd, alpha=self.tau)
        return Split(parts, rest)

    @cached_property
    def _layers(self) -> list["_Layer"]:
        return [_Layer.of(state) for state in self.states]

    def tensors(self) -> dict[str, Tensor]:
        """Return the start and the states, as start and layer.0, layer.1, ..."""
        return {"start": self.start.vectors} | {f"layer.{number}": state for number, state in enumerate(self.states)}

    def numbers(self) -> dict[str, Any]:
        """Return the step size, the terms of Omega and the warm-up's power."""
        return {"tau": self.tau, "power": self.start.power, "weights": asdict(self.weights)}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> Self:
        """Return the rule that was stored."""
        names = [f"layer.{number}" for number in range(len(tensors) - 1)]
        if set(tensors) != {"start", *names}:
            raise DataError(f"fold-in tensors must be start, layer.0, layer.1, ...; found {', '.join(sorted(tensors))}")
        start = WeightedSum(tensors["start"], float(numbers["power"]))
        weights = RankWeights(**numbers["weights"])
        return cls(start, tuple(tensors[name] for name in names), weights, float(numbers["tau"]))


class _Layer(NamedTuple):
    """The item side of one layer."""

    items: Tensor  # (m, d) v_i
    inv_norm: Tensor  # (m,) 1 / |v_i|, 0 for a zero row
    gram: Tensor  # (d, d) M = X_i^T V_i
    s_x: Tensor  # (d,) sum_i x_i
    s_v: Tensor  # (d,) sum_i v_i

    @classmethod
    def of(cls, items: Tensor) -> "_Layer":
        rows = items.double()
        inv_norm = _safe_inverse(torch.linalg.vector_norm(rows, dim=1))
        units = rows * inv_norm[:, None]
        return cls(items, inv_norm, units.T @ rows, units.sum(0), rows.sum(0))

    def step(self, v: Tensor, histories: Histories, weights: RankWeights) -> Split:
        """Return omega+_e v_i / C_u for each entry (h, d) and the crowd's part of y_u / C_u (b, d)."""
        users, m = histories.users, len(self.items)
        d_u = histories.sizes
        p, e_inv = 1 / d_u.clamp(min=1), 1 / (m - d_u).clamp(min=1)
        g = {"push": e_inv, "pull": p, "none": torch.zeros_like(p)}[weights.negatives]
        alpha, beta, similarity = weights.alpha, float(weights.benchmark), float(weights.similarity)

        x = v * (_safe_inverse(torch.linalg.vector_norm(v, dim=1)) * similarity)[:, None]  # (b, d)
        items = self.items[histories.items].double()  # (h, d)
        s = (x[users] * items).sum(1) * self.inv_norm[histories.items]  # (h,)
        row_sum = _sums(s, histories)
        rest = x @ self.s_x - row_sum  # sum of s over the user's negatives
        b_pos, b_neg = row_sum * p, rest * e_inv  # Eq. 7
        r = g * (beta * b_pos + alpha)
        omega_pos = (s - beta * b_neg[users] + alpha) * p[users]  # Eq. 6
        omega_neg = s * g[users] - r[users]
        sum_neg = (m - d_u) * r - g * rest
        inv_c = self._inverse_normalizer(_sums(omega_pos.abs(), histories), sum_neg, weights)

        crowd = (g[:, None] * x) @ self.gram - r[:, None] * self.s_v
        crowd = crowd.index_add(0, users, omega_neg[:, None] * items, alpha=-1)
        return Split(items * (omega_pos * inv_c[users])[:, None], crowd * inv_c[:, None])

    @staticmethod
    def _inverse_normalizer(sum_pos: Tensor, sum_neg: Tensor, weights: RankWeights) -> Tensor:
        """Return 1 / C_u (Eq. 8), with the same estimate as the layer where that is not exact."""
        if not weights.normalize:
            return torch.ones_like(sum_pos)
        if weights.exact_normalizer:
            return _safe_inverse(sum_pos + sum_neg)
        flip = -1.0 if weights.negatives == "pull" else 1.0
        return _safe_inverse(sum_pos + (flip * sum_neg).clamp(min=weights.floor))


def _sums(values: Tensor, histories: Histories) -> Tensor:
    """Return the sum of each user's values, (b,)."""
    return torch.zeros(histories.num_users, dtype=values.dtype).index_add_(0, histories.users, values)


def _safe_inverse(values: Tensor) -> Tensor:
    """Return 1/x, and 0 where x is 0."""
    return torch.where(values == 0, 0.0, 1 / values)
