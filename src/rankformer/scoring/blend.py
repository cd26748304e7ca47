"""`BlendScorer`: the weighted sum of what several scorers say, each standardized per user.

    y_ui = sum_k w_k (s_k,ui - mean_k,u) / sd_k,u         mean and standard deviation over all items

so that a score is in standard deviations above the user's average item, whatever the members' own scales. For
embeddings both come in closed form, mean_u = x_u . ybar and sd_u^2 = x_u^T Cov(Y) x_u, and the standardized member is
an inner product again, of x_u / sd_u and y_i - ybar. A member that says the same of every item (sd = 0) says nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError, NotSupportedError
from rankformer.scoring.base import Contributions, Scorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.histories import Histories

_LEAST_SPREAD = 1e-6  # of the mean; a smaller standard deviation is rounding, not preference


class Moments(NamedTuple):
    """Mean and covariance of item embeddings, float64."""

    mean: Tensor  # (d,)
    covariance: Tensor  # (d, d)


class Weighed(NamedTuple):
    """The weights of a blend's members, and what the validation part says of them: NDCG@20 of the same users."""

    weights: list[float]
    value: float  # of the blend
    without: list[float]  # of the blend without each member
    alone: list[float]  # of each member


@dataclass(frozen=True)
class Member:
    """A scorer of a blend."""

    name: str  # of its method
    scorer: Scorer
    weight: float  # w_k
    counts_weights: bool = True  # whether weights of interactions count in it; else each counts 1
    moments: Moments | None = field(default=None, repr=False)  # of its item embeddings, where it has some

    @classmethod
    def of(cls, name: str, scorer: Scorer, weight: float, counts_weights: bool = True) -> "Member":
        """Return the member, with its moments computed."""
        if not isinstance(scorer, Embeddings):
            return cls(name, scorer, weight, counts_weights)
        items = scorer.items.double()
        centred = items - items.mean(dim=0)
        return cls(name, scorer, weight, counts_weights, Moments(items.mean(dim=0), centred.T @ centred / len(items)))

    def vectors(self) -> tuple[Tensor, Tensor] | None:
        """Return user and item vectors whose inner product is the weighted standardized score; None without such."""
        if not isinstance(self.scorer, Embeddings) or self.moments is None:
            return None
        users = self.scorer.users.double()
        spread = ((users @ self.moments.covariance) * users).sum(dim=1).clamp(min=0).sqrt()
        scale = _inverse(spread, users @ self.moments.mean) * self.weight
        items = self.scorer.items.double() - self.moments.mean
        return tuple(part.to(self.scorer.items.dtype) for part in (users * scale[:, None], items))  # type: ignore[return-value]

    def add_scores(self, users: Tensor, total: Tensor) -> None:
        """Add the weighted standardized scores of users to a (b, m) matrix."""
        scores = self.scorer.scores(users).to(total.dtype)
        mean = scores.mean(dim=1, keepdim=True)
        deviation = torch.linalg.vector_norm(scores.sub_(mean), dim=1, keepdim=True) / scores.shape[1] ** 0.5
        total.addcmul_(scores, _inverse(deviation, mean) * self.weight)  # a fifth of the time of std_mean

    def counted(self, histories: Histories) -> Histories:
        """Return histories as this member counts them."""
        return histories if self.counts_weights else histories._replace(weights=None)

    def split(self, history: Histories, item: int, user: int | None) -> Contributions:
        """Return the contributions to the weighted standardized score of an item.

        With embeddings each is what it adds to this item beyond the average item; elsewhere the mean is global.
        """
        history, scorer = self.counted(history), self.scorer
        if isinstance(scorer, Embeddings) and self.moments is not None:
            scorer = replace(scorer, items=scorer.items - self.moments.mean.to(scorer.items.dtype))
        folded = scorer if user is not None else scorer.for_histories(history)
        row = folded.scores(torch.tensor([user or 0])).double()[0]
        if scorer.can_explain:
            raw = scorer.contributions(history, item, user)
        else:  # all of it is the user's own embedding
            raw = Contributions(float(row[item]), np.zeros(len(history.items)), float(row[item]), 0.0)
        deviation, average = torch.std_mean(row, correction=0)
        scale, mean = float(_inverse(deviation, average)) * self.weight, float(average)
        return Contributions(
            (raw.score - mean) * scale, raw.items * scale, raw.user * scale, (raw.overall - mean) * scale
        )


@dataclass(frozen=True, eq=False)
class BlendScorer(Scorer):
    """The weighted sum of standardized scores of its members."""

    kind: ClassVar[str] = "blend"
    can_compare_items = True
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        if not self.members:
            raise DataError("a blend needs at least one member")
        sizes = {(member.scorer.num_users, member.scorer.num_items) for member in self.members}
        if len(sizes) > 1:
            raise DataError(f"the members of a blend differ in their users and items: {sorted(sizes)}")

    @classmethod
    def of(
        cls, scorers: Mapping[str, Scorer], weights: Mapping[str, float], unweighted: Collection[str] = ()
    ) -> "BlendScorer":
        """Return the blend of the scorers whose weight is above 0; in those named `unweighted` interactions count 1."""
        chosen = ((name, scorer) for name, scorer in scorers.items() if weights[name])
        return cls(tuple(Member.of(name, scorer, weights[name], name not in unweighted) for name, scorer in chosen))

    @property
    def num_users(self) -> int:
        return self.members[0].scorer.num_users

    @property
    def num_items(self) -> int:
        return self.members[0].scorer.num_items

    @cached_property
    def _vectors(self) -> Embeddings | None:
        """All members with vectors as one: their vectors side by side; None without any."""
        found = [vectors for member in self.members if (vectors := member.vectors()) is not None]
        if not found:
            return None
        users, items = (torch.cat([each.float() for each in side], dim=1) for side in zip(*found, strict=True))
        return Embeddings(users, items)

    def scores(self, users: Tensor, out: Tensor | None = None) -> Tensor:
        if self._vectors is not None:
            total = self._vectors.scores(users, out)
        else:
            total = torch.zeros(len(users), self.num_items)
        for member in self.members:
            if member.moments is None:
                member.add_scores(users, total)
        return total

    def score_buffer(self, rows: int) -> Tensor | None:
        return None if self._vectors is None else self._vectors.score_buffer(rows)

    def as_embeddings(self) -> Embeddings:
        without = [member.name for member in self.members if member.moments is None]
        if without or self._vectors is None:
            raise NotSupportedError(
                f"{', '.join(without)} in this blend scores without embeddings; this needs a blend of methods that "
                "have them, such as members=rankformer,ials,lightgcn"
            )
        return self._vectors

    @property
    def can_fold_in(self) -> bool:
        return any(member.scorer.can_fold_in for member in self.members)

    @property
    def left_out_of_fold_in(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members if not member.scorer.can_fold_in)

    @property
    def can_explain(self) -> bool:
        return any(member.scorer.can_explain for member in self.members)

    def for_histories(self, histories: Histories) -> Scorer:
        """Return the blend of the members that can score new users."""
        able = [member for member in self.members if member.scorer.can_fold_in]
        if not able:
            return super().for_histories(histories)
        return BlendScorer(
            tuple(replace(each, scorer=each.scorer.for_histories(each.counted(histories))) for each in able)
        )

    def contributions(self, history: Histories, item: int, user: int | None) -> Contributions:
        if not self.can_explain:
            return super().contributions(history, item, user)
        able = [member for member in self.members if user is not None or member.scorer.can_fold_in]
        parts = {member.name: member.split(history, item, user) for member in able}
        score, user_part, overall = (
            sum(getattr(part, name) for part in parts.values()) for name in ("score", "user", "overall")
        )
        items = np.sum([part.items for part in parts.values()], axis=0)
        return Contributions(score, items, user_part, overall, {name: part.score for name, part in parts.items()})

    def similarities(self, item: int) -> Tensor:
        """Return the weighted sum of the members' standardized similarities; -inf where no member sees any."""
        total = torch.zeros(self.num_items, dtype=torch.float64)
        seen = torch.zeros(self.num_items, dtype=torch.bool)
        for member in self.members:
            if not member.scorer.can_compare_items:
                continue
            values = member.scorer.similarities(item).double()
            found = torch.isfinite(values)
            found[item] = False
            seen |= found
            values = values.where(found, 0.0)
            deviation, mean = torch.std_mean(values, correction=0)
            total += (values - mean) * _inverse(deviation, mean) * member.weight
        return total.masked_fill_(~seen, float("-inf")).float()

    def cpu(self) -> "BlendScorer":
        return BlendScorer(tuple(replace(each, scorer=each.scorer.cpu()) for each in self.members))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of member k as member.k.NAME."""
        return {
            f"member.{k}.{name}": values
            for k, member in enumerate(self.members)
            for name, values in member.scorer.tensors().items()
        }

    def metadata(self) -> dict[str, Any]:
        members = [
            {
                "name": each.name,
                "weight": each.weight,
                "counts_weights": each.counts_weights,
                "scorer": each.scorer.metadata(),
            }
            for each in self.members
        ]
        return {"kind": self.kind, "members": members}

    @classmethod
    def restore(
        cls, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], history: Interactions
    ) -> "BlendScorer":
        from rankformer.scoring.stored import restore_scorer  # which knows this class

        records = metadata.get("members")
        if not isinstance(records, list) or len(records) > 64:
            raise DataError("a blend must list its members, 64 at most")
        members = []
        for k, record in enumerate(records):
            name, weight, counts_weights, described = _checked(record)
            prefix = f"member.{k}."
            own = {key.removeprefix(prefix): each for key, each in tensors.items() if key.startswith(prefix)}
            counted = history if counts_weights else replace(history, weights=None)
            members.append(Member.of(name, restore_scorer(described, own, counted), weight, counts_weights))
        return cls(tuple(members))


def _checked(record: Any) -> tuple[str, float, bool, Mapping[str, Any]]:
    """Return name, weight, whether weights count, and scorer of a member as a run folder describes it."""
    if not isinstance(record, dict) or record.keys() != {"name", "weight", "counts_weights", "scorer"}:
        raise DataError("each member of a blend must have name, weight, counts_weights and scorer, and nothing else")
    name, weight, scorer = record["name"], record["weight"], record["scorer"]
    if not isinstance(scorer, dict) or scorer.get("kind") == BlendScorer.kind or not isinstance(name, str):
        raise DataError("a member of a blend must be named and have a scorer of its own, other than a blend")
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= 1e6:
        raise DataError(f"the weight of {name} in the blend is {weight!r}; expected a number above 0")
    if not isinstance(record["counts_weights"], bool):
        raise DataError(f"counts_weights of {name} in the blend is {record['counts_weights']!r}; expected a boolean")
    return name, float(weight), record["counts_weights"], scorer


def _inverse(spread: Tensor, mean: Tensor) -> Tensor:
    """Return 1 / spread, and 0 where there is none."""
    least = (_LEAST_SPREAD * mean.abs()).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.where(spread > least, spread.reciprocal(), torch.zeros_like(spread))
