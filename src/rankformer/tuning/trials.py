"""`Trial`: one training of a search, as it is kept."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from rankformer.errors import RunFolderError

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """One training and what came of it.

    Attributes:
        number: its place in the search, from 0; number 0 is the method's defaults.
        state: complete; pruned, stopped since others were better at the same epoch; or failed.
        settings: the values that were searched, by name.
        value: the best validation, None if it failed.
        epoch: the epoch of that validation, None for methods without epochs.
        validations: value at each validation, by epoch.
        seconds: how long it took.
        problem: why it failed, empty otherwise.
    """

    number: int
    state: State
    settings: dict[str, Any]
    value: float | None = None
    epoch: int | None = None
    validations: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the trial as values that JSON can hold."""
        return {**asdict(self), "validations": [[epoch, value] for epoch, value in self.validations.items()]}

    @classmethod
    def from_json(cls, content: Any) -> "Trial":
        """Return the trial that `to_json` described.

        Raises:
            RunFolderError: the content describes none.
        """
        try:
            validations = {int(epoch): float(value) for epoch, value in content["validations"]}
            trial = cls(**{**content, "validations": validations})
        except (TypeError, ValueError, KeyError) as error:
            raise RunFolderError(f"a trial in it cannot be read ({error})") from error
        if trial.state not in get_args(State) or (trial.value is None) != (trial.state == "failed"):
            raise RunFolderError(f"trial {trial.number} in it is {trial.state} with the value {trial.value}")
        return trial


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the complete trial with the highest value, the earliest of equals; None without any."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)
