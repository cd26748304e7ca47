"""Why an item was scored as it was: the score as an exact sum over the user's history."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Reason:
    """What one item of the history brings to a score.

    Attributes:
        item_id: raw id of the item.
        title: its title, None where it has none.
        contribution: its term of the sum; an item that occurs several times is one reason.
    """

    item_id: Any
    title: str | None
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """The score of an item for a user: sum of the contributions + own + crowd.

    Attributes:
        user_id: raw id of the user, None for one who is only a history.
        item_id: raw id of the scored item.
        title: its title, None where it has none.
        score: what is explained.
        reasons: the items of the history, the largest contribution first.
        own: what the user's own learned vector brings, 0 for methods and users without one.
        crowd: what the items outside the history bring together: the negatives and the global terms.
    """

    user_id: Any
    item_id: Any
    title: str | None
    score: float
    reasons: tuple[Reason, ...]
    own: float
    crowd: float

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as dictionaries and lists."""
        return {**asdict(self), "reasons": [asdict(reason) for reason in self.reasons]}

    def __str__(self) -> str:
        lines = [f"{_name(self)}: {self.score:.4f}"]
        lines += [f"  {reason.contribution:+.4f}  {_name(reason)}" for reason in self.reasons]
        lines += [f"  {self.own:+.4f}  (the user's own vector)"] if self.own else []
        return "\n".join([*lines, f"  {self.crowd:+.4f}  (all other items)"])


def _name(entry: Reason | Explanation) -> str:
    return str(entry.item_id) if entry.title is None else f"{entry.item_id} {entry.title}"
