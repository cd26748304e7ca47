"""What a fit is given besides the interactions: how to validate, where events go, where checkpoints are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from rankformer.scoring.base import Scorer

Event = dict[str, Any]


class TrainingState(NamedTuple):
    """The whole state of a training: parameters, optimiser and best parameters as tensors, and a few numbers."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class CheckpointWriter(Protocol):
    """Where a training keeps its state."""

    def save(self, epoch: int, state: TrainingState) -> None:
        """Keep the state after an epoch, in place of the last one."""


def ignore_event(event: Event) -> None:
    """Do nothing with an event."""


@dataclass(frozen=True)
class FitContext:
    """The surroundings of a fit; by default there are none.

    Attributes:
        validate: returns the metrics of a scorer on the validation part; None where there is no such part.
        record: is called with one event per epoch and per validation.
        checkpoints: where the training state goes; None keeps none.
        resume_from: the state to continue from, None to start anew.
    """

    validate: Callable[[Scorer], dict[str, float]] | None = None
    record: Callable[[Event], None] = ignore_event
    checkpoints: CheckpointWriter | None = None
    resume_from: TrainingState | None = None
