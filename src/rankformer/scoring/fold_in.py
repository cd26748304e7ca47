"""Fold-in: embeddings of users who were not in the training data, from their histories, without training.

A rule splits the embedding of a user into a part for each item of the history and a rest that belongs to no item of it,
v_u = sum_e part_e + rest_u. The sum embeds a user; the split explains a score, for y_ui = v_u . v_i is linear in it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from rankformer.errors import DataError
from rankformer.layers.rank_attention import inverse_normalizer, safe_inverse_, user_constants, user_terms
from rankformer.layers.rank_weights import RankWeights
from rankformer.layers.threshold_attention import slope
from rankformer.scoring.base import Part, check_tensor, stored_number
from rankformer.scoring.histories import Histories

_ROWS_AT_ONCE = 1 << 14
_NUMBERS_AT_ONCE = 1 << 21  # bounds the systems and right sides that are held together


class Split(NamedTuple):
    """The embeddings of a batch of users as sums: v_u = sum of the parts of u's entries + rest_u."""

    parts: Tensor  # (h, d) contribution of each entry
    rest: Tensor  # (b, d) contribution of everything else


class FoldIn(Part, ABC):
    """How a method embeds a user from a history.

    Attributes:
        rule: name of the rule in a run folder.
        explains: whether the parts say something of the items they belong to.
    """

    rule: ClassVar[str]
    explains: ClassVar[bool] = True

    @property
    def own_embedding(self) -> bool:
        """Whether training users also have a learned embedding of their own, which new users lack."""
        return False

    @abstractmethod
    def split(self, histories: Histories) -> Split:
        """Return the users' embeddings as sums, in float64."""

    def total(self, histories: Histories) -> Tensor:
        """Return the users' embeddings, (b, d) float64."""
        parts, rest = self.split(histories)
        return rest.index_add(0, histories.users, parts)

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Self:
        """Return the rule that `tensors` and `metadata` described."""
        numbers = {f.name: stored_number(metadata, f.name, f.type) for f in fields(cls) if f.type is not Tensor}
        return cls(**numbers, **{f.name: tensors[f.name] for f in fields(cls) if f.type is Tensor})


def embed(rule: FoldIn, histories: Histories) -> Tensor:
    """Return the embeddings of the users of a batch of histories, (b, d) float64."""
    rows = []
    for piece in histories.pieces() if histories.num_users else [histories]:  # none: one empty piece, for the shape
        rows.append(rule.total(piece))
    return torch.cat(rows)


def check_tensors(tensors: dict[str, Tensor], num_items: int, dim: int) -> None:
    """Reject tensors of a rule that do not fit a model of m items and dimension d."""
    for name, value in tensors.items():
        shape = (1 if value.shape[:1] == (1,) else num_items, dim)
        check_tensor(value, f"fold-in tensor {name}", shape, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class WeightedSum(FoldIn):
    """v_u = d_u^-p sum_{e in u} w_e t_i: propagation methods, for a user without an embedding of its own.

    w_e is the weight of an entry, 1 where histories have none, and d_u the sum of the weights.
    """

    rule: ClassVar[str] = "weighted-sum"
    vectors: Tensor  # (m, d) t_i, what an item hands to each of its users
    power: float  # p, 1 for means and 1/2 for symmetric normalisation
    own_embedding: bool = False  # whether training users have an embedding of their own on top

    def split(self, histories: Histories) -> Split:
        sizes = histories.sizes
        scale = torch.where(sizes > 0, sizes, 1.0).pow(-self.power)
        parts = histories.times_weights(self.vectors[histories.items].double() * scale[histories.users, None])
        return Split(parts, parts.new_zeros(histories.num_users, parts.shape[1]))


@dataclass(frozen=True, eq=False)
class Constant(FoldIn):
    """v_u = c: every user has the same embedding, whatever the history."""

    rule: ClassVar[str] = "constant"
    explains: ClassVar[bool] = False
    vector: Tensor  # (1, d) c

    def split(self, histories: Histories) -> Split:
        rest = self.vector.double().expand(histories.num_users, -1)
        return Split(rest.new_zeros(len(histories.items), rest.shape[1]), rest)


@dataclass(frozen=True, eq=False)
class LeastSquares(FoldIn):
    """The embedding that fits a history best by weighted least squares, the items being fixed.

        A_u v_u = c sum_{e in u} w_e q_i,      A_u = Q^T Q + lambda_u I + (c - 1) sum_{e in u} w_e q_i q_i^T

    w_e is the weight of an entry, 1 where histories have none, and their sum d_u is in lambda_u =
    `regularization` (d_u + `offset`)^`exponent` (`rankformer.graph.least_squares` has the objective).
    With A_u held, v_u is the sum of c w_e A_u^-1 q_i over the history: each q_i enters and leaves times sqrt(w_e).
    In the basis of the eigenvectors of Q^T Q, where D = Q^T Q + lambda_u I is diagonal, histories shorter than d solve
    a system of their own size in place of d x d: Q_u A_u^-1 = (I + (c - 1) Q_u D^-1 Q_u^T)^-1 Q_u D^-1.
    """

    rule: ClassVar[str] = "least-squares"
    vectors: Tensor  # (m, d) Q, the items' embeddings
    weight: float  # c, of an interaction of the history, where every other pair weighs 1
    regularization: float
    offset: float = 0.0
    exponent: float = 0.0

    def __post_init__(self) -> None:
        if not (1 <= self.weight < math.inf and 0 < self.regularization < math.inf):
            found = f"weight={self.weight} and regularization={self.regularization}"
            raise DataError(f"least squares with {found}: expected a weight from 1 and a regularization above 0")
        if not (0 <= self.offset < math.inf and 0 <= self.exponent < math.inf):
            found = f"offset={self.offset} and exponent={self.exponent}"
            raise DataError(f"least squares with {found}: expected an offset and an exponent from 0")

    @cached_property
    def _gram(self) -> Tensor:
        """Q^T Q, (d, d)."""
        gram = torch.zeros(self.vectors.shape[1], self.vectors.shape[1], dtype=torch.float64)
        for start in range(0, len(self.vectors), _ROWS_AT_ONCE):
            rows = self.vectors[start : start + _ROWS_AT_ONCE].double()
            gram.addmm_(rows.T, rows)
        return gram

    @cached_property
    def _eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues (d,) and eigenvectors (d, d) of Q^T Q."""
        values, vectors = torch.linalg.eigh(self._gram)
        return values.clamp(min=0), vectors

    def split(self, histories: Histories) -> Split:
        parts = torch.zeros(len(histories.items), self.vectors.shape[1], dtype=torch.float64)
        for batch in self._batches(histories):
            # Each entry by itself: c A_u^-1 q_i sqrt(w_e), for the q_i of a user side by side.
            solved = batch.solve(torch.diag_embed(batch.roots), self.weight).mT  # (b, l, d)
            parts[batch.entries[batch.filled]] = solved[batch.filled]
        return Split(parts @ self._eigen[1].T, parts.new_zeros(histories.num_users, parts.shape[1]))

    def total(self, histories: Histories) -> Tensor:
        """Return the users' embeddings; one right side per user, where `split` has one per entry."""
        sums = torch.zeros(histories.num_users, self.vectors.shape[1], dtype=torch.float64)
        for batch in self._batches(histories):
            sums[batch.users] = batch.solve(batch.roots[:, :, None], self.weight)[:, :, 0]
        return sums @ self._eigen[1].T

    def _batches(self, histories: Histories) -> Iterator["_Systems"]:
        """Yield the users that have entries, longest history first, in batches of bounded memory when padded."""
        values, basis = self._eigen
        sizes, d = histories.counts, len(basis)
        totals = sizes if histories.weights is None else histories.sizes  # (b,) d_u
        roots = None if histories.weights is None else histories.weights.double().sqrt()
        starts = sizes.cumsum(0) - sizes
        distinct, item_of = torch.unique(histories.items, return_inverse=True)
        rotated = self.vectors[distinct].double() @ basis
        order = torch.argsort(sizes, descending=True, stable=True)[: int((sizes > 0).sum())]
        while len(order):
            longest = int(sizes[order[0]])
            numbers = longest * (3 * d + 2 * longest) if longest < d else d * (2 * d + 3 * longest)
            users, order = order.tensor_split([max(1, _NUMBERS_AT_ONCE // numbers)])
            position = torch.arange(longest)
            filled = position < sizes[users, None]  # (b, l)
            entries = torch.where(filled, starts[users, None] + position, 0)
            root = filled.double() if roots is None else filled * roots[entries]
            strength = self.regularization * (totals[users] + self.offset).double() ** self.exponent  # (b,) lambda_u
            q = rotated[item_of[entries]].mul_(root[:, :, None])
            yield _Systems(users, entries, filled, root, q, values + strength[:, None])


class _Systems(NamedTuple):
    """The normal equations of a batch of users, histories padded to one length l."""

    users: Tensor  # (b,)
    entries: Tensor  # (b, l) which entry; any where there is none
    filled: Tensor  # (b, l) whether there is one
    roots: Tensor  # (b, l) sqrt(w_e), 0 where there is none
    q: Tensor  # (b, l, d) sqrt(w_e) q_i in the basis of the eigenvectors
    diagonal: Tensor  # (b, d) D

    def solve(self, right: Tensor, weight: float) -> Tensor:
        """Return c A_u^-1 Q_u^T r, (b, d, k), for right sides r (b, l, k)."""
        q, root = self.q, self.diagonal.sqrt()
        if q.shape[1] >= q.shape[2]:
            systems = (weight - 1) * (q.mT @ q) + torch.diag_embed(self.diagonal)  # (b, d, d)
            return torch.cholesky_solve(weight * (q.mT @ right), torch.linalg.cholesky(systems))
        scaled = q / root[:, None]  # (b, l, d) Q_u D^-1/2
        systems = (weight - 1) * (scaled @ scaled.mT)  # (b, l, l)
        systems.diagonal(dim1=1, dim2=2).add_(1)
        solved = torch.cholesky_solve(weight * right, torch.linalg.cholesky(systems))
        return (scaled.mT @ solved).div_(root[:, :, None])


@dataclass(frozen=True, eq=False)
class RankFoldIn(FoldIn):
    """The user's half of a stack of Rankformer layers, against frozen item states.

    A user's embedding never enters its own warm-up, which sums embeddings of items. Each layer then needs, beside the
    user's embedding, only those of the items in that layer, V_i, and sums over all items. With these frozen a user is
    embedded by running the user's half of the layers (`rankformer.layers.rank_attention` has algebra and letters):

        v_u <- (1 - tau) v_u + tau y_u / C_u
        y_u = sum_{e in u} omega+_e v_i  +  [ g_u x_u M - r_u s_V - sum_{e in u} omega-_e v_i ]
              the history's part            the global part: all items outside the history

    For a training user whose history is complete that is the computation which made the trained embedding, so it gives
    it back. With the weights held at their values v_u is linear in the items' embeddings; unrolled over the layers,

        v_u^L = sum_l (1 - tau)^(L-1-l) tau / C_u^l ( sum_e omega+_e^l v_i^l + global^l )  +  (1 - tau)^L v_u^0 .
    """

    rule: ClassVar[str] = "rank-attention"
    start: WeightedSum  # the warm-up, which makes the users' first embeddings from the items'
    states: tuple[Tensor, ...]  # L item states (m, d), the input of each layer
    weights: RankWeights  # the terms of Omega
    tau: float  # step size of a layer

    def split(self, histories: Histories) -> Split:
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
        return {"start": self.start.vectors} | {f"layer.{number}": state for number, state in enumerate(self.states)}

    def metadata(self) -> dict[str, Any]:
        return {"tau": self.tau, "power": self.start.power, "weights": asdict(self.weights)}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Self:
        names = [f"layer.{number}" for number in range(len(tensors) - 1)]
        if set(tensors) != {"start", *names}:
            raise DataError(f"fold-in tensors must be start, layer.0, layer.1, ...; found {', '.join(sorted(tensors))}")
        start = WeightedSum(tensors["start"], stored_number(metadata, "power", float))
        stored, kinds = metadata["weights"], {field.name: field.type for field in fields(RankWeights)}
        numbers = [name for name in stored if kinds.get(name) in (bool, float)]
        weights = RankWeights(**{**stored, **{name: stored_number(stored, name, kinds[name]) for name in numbers}})
        return cls(start, tuple(tensors[name] for name in names), weights, stored_number(metadata, "tau", float))


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
        k = user_constants(histories.sizes, histories.counts.double(), len(self.items), weights, torch.float64)
        sign = weights.curvature * float(weights.similarity)
        x = v * (safe_inverse_(torch.linalg.vector_norm(v, dim=1)) * sign)[:, None]  # (b, d)
        items = self.items[histories.items].double()  # (h, d)
        s = (x[users] * items).sum(1) * self.inv_norm[histories.items]  # (h,)

        def sum_entries(values: Tensor) -> Tensor:
            return torch.zeros(histories.num_users, dtype=values.dtype).index_add_(0, users, values)

        entry_weights = None if histories.weights is None else histories.weights.double()
        t = user_terms(s, x @ self.s_x, k, weights, lambda values: values[users], sum_entries, entry_weights)
        inv_c = inverse_normalizer(sum_entries(t.omega_pos.abs()), t.sum_neg, weights)
        rest = (k.g[:, None] * x) @ self.gram - t.r[:, None] * self.s_v
        rest = rest.index_add(0, users, t.omega_neg[:, None] * items, alpha=-1)
        return Split(items * (t.omega_pos * inv_c[users])[:, None], rest * inv_c[:, None])


@dataclass(frozen=True, eq=False)
class ThresholdFoldIn(FoldIn):
    """The user's half of TopKGAT's layers, for a user without an embedding and thresholds of its own.

        v_u^0 = 1/sqrt(d_u) sum_{e in u} s_i^0
        v_u^{l+1} = 1/sqrt(d_u) sum_{e in u} 4 sigma(a_e) sigma(-a_e) s_i^l,   a_e = cos(v_u^l, s_i^l) - t^l

    s_i^l is the item's embedding in layer l over sqrt(d_i), t^l the mean threshold of the training users. What a user
    has of its own enters a layer through a_e alone, whose weights lie between 0.4 and 1: so the embedding comes close
    to the one that training would give. The last layer's sum is the embedding, and its terms are the parts.
    """

    rule: ClassVar[str] = "threshold-attention"
    states: tuple[Tensor, ...]  # L item states (m, d), s^0 to s^(L-1)
    thresholds: tuple[float, ...]  # L, t^0 to t^(L-1)

    @property
    def own_embedding(self) -> bool:
        return True

    def split(self, histories: Histories) -> Split:
        users = histories.users
        scale = torch.where(histories.sizes > 0, histories.sizes, 1.0).rsqrt()[users, None]  # (h, 1)
        nothing = torch.zeros(histories.num_users, self.states[0].shape[1], dtype=torch.float64)
        v = None
        for state, threshold in zip(self.states, self.thresholds, strict=True):
            items = state[histories.items].double()  # (h, d)
            if v is None:
                v = nothing.index_add(0, users, histories.times_weights(items * scale))
            similarity = torch.nn.functional.cosine_similarity(v[users], items, dim=1, eps=0.0).nan_to_num()
            weights = slope(torch.sigmoid(similarity - threshold))[:, None]
            parts = histories.times_weights(items * (weights * scale))
            v = nothing.index_add(0, users, parts)
        return Split(parts, nothing)

    def tensors(self) -> dict[str, Tensor]:
        return {f"layer.{number}": state for number, state in enumerate(self.states)}

    def metadata(self) -> dict[str, Any]:
        return {f"threshold.{number}": threshold for number, threshold in enumerate(self.thresholds)}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Self:
        count = range(len(tensors))
        if not tensors or set(tensors) != {f"layer.{number}" for number in count}:
            raise DataError(f"fold-in tensors must be layer.0, layer.1, ...; found {', '.join(sorted(tensors))}")
        thresholds = tuple(stored_number(metadata, f"threshold.{number}", float) for number in count)
        return cls(tuple(tensors[f"layer.{number}"] for number in count), thresholds)


FOLD_IN_RULES: dict[str, type[FoldIn]] = {
    kind.rule: kind for kind in (RankFoldIn, ThresholdFoldIn, WeightedSum, LeastSquares, Constant)
}
