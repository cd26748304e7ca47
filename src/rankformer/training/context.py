"""What a fit is given besides the interactions: how to validate, where events go, where checkpoints are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from rankformer.scoring.base import Scorer
from rankformer.scoring.blend import Weighed

Event = dict[str, Any]
Validate = Callable[[Scorer], dict[str, float]]  # metrics of a scorer on the validation part


class TrainingState(NamedTuple):
    """The whole state of a training: a few numbers, and tensors called network.NAME, best.NAME and adam.NAME."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors of a group such as "best.", by their names in it."""
        return {name.removeprefix(prefix): t for name, t in self.tensors.items() if name.startswith(prefix)}


class CheckpointWriter(Protocol):
    """Where a training keeps its state after an epoch, in place of the last one."""

    def save(self, epoch: int, state: TrainingState) -> None: ...


@dataclass(frozen=True)
class WarmStart:
    """What an earlier fit learned from fewer interactions, whose users and items have the first indices."""

    parameters: Mapping[str, Tensor]  # by name; empty where a method has none beside the scorer
    scorer: Scorer


@dataclass(frozen=True)
class FitContext:
    """What a fit is given besides the interactions; None means absent."""

    validate: Validate | None = None  # how to measure
    record: Callable[[Event], None] = lambda event: None  # is called with one event per epoch and per validation
    checkpoints: CheckpointWriter | None = None  # where the training state goes
    resume_from: TrainingState | None = None  # the state to continue from
    choices: Mapping[str, Any] | None = None  # what an earlier fit's validation chose, to be held fixed
    warm: WarmStart | None = None  # what to continue from, with the choices of that fit
    weigh: Callable[[Sequence[Scorer]], Weighed] | None = None  # chooses the weights of a blend
