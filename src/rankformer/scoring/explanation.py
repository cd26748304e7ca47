"""Why an item was scored as it was: the score as an exact sum over the user's history."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rankformer.scoring.html import html_table


@dataclass(frozen=True)
class Reason:
    """What one item of the history contributes to a score; one that occurs several times is one reason."""

    item_id: Any
    title: str | None
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """The score of an item for a user: sum of the reasons' contributions + user's + global contribution.

    Attributes:
        user_id: raw id of the user, None for a new user.
        item_id: raw id of the scored item.
        title: its title, None where it has none.
        score: the score that is explained.
        reasons: the items of the history, the largest contribution first.
        user_contribution: of the user's own learned embedding, 0 for methods and users without one.
        global_contribution: of the items outside the history together: the negatives and the global terms.
        members: of a blend, the same score as a sum over its methods; None for other models.
    """

    user_id: Any
    item_id: Any
    title: str | None
    score: float
    reasons: tuple[Reason, ...]
    user_contribution: float
    global_contribution: float
    members: Mapping[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as dictionaries and lists."""
        content = {**asdict(self), "reasons": [asdict(reason) for reason in self.reasons]}
        if self.members is None:
            del content["members"]
        return content

    def __str__(self) -> str:
        lines = [f"  {contribution:+.4f}  {name}" for name, contribution in self._parts()]
        lines += [f"  {value:+.4f}  by {name}" for name, value in (self.members or {}).items()]
        return "\n".join([f"{_name(self)}: {self.score:.4f}", *lines])

    def _repr_html_(self) -> str:
        return html_table(("because of", "contribution"), self._parts(), f"{_name(self)}: {self.score:.4f}")

    def _parts(self) -> list[tuple[str, float]]:
        """Return what the score is the sum of, by name."""
        parts = [(_name(reason), reason.contribution) for reason in self.reasons]
        parts += [("(the user's own embedding)", self.user_contribution)] if self.user_contribution else []
        return [*parts, ("(all other items)", self.global_contribution)]


def _name(entry: Reason | Explanation) -> str:
    return str(entry.item_id) if entry.title is None else f"{entry.item_id} {entry.title}"
