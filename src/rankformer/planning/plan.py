"""A plan: what a training would need on this machine, and what to change when that is too much."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rankformer.data.interactions import Parts
from rankformer.errors import ConfigError
from rankformer.models.base import GradientModel, Model, TrainedModel
from rankformer.models.rankformer import RankformerSettings
from rankformer.planning.machine import memory_now, memory_of_machine, peak_memory
from rankformer.planning.memory import Forecast, Shape, forecast_rankformer
from rankformer.planning.probe import forecast_measured, warm_up
from rankformer.planning.seconds import Seconds, measure_seconds

SHARE_OF_MACHINE = 0.9  # the rest is for the system
_SMALLEST_WIDTH = 8


@dataclass(frozen=True)
class Change:
    """Settings that would lower the peak.

    Attributes:
        settings: what to change.
        peak: bytes at most with them.
    """

    settings: dict[str, Any]
    peak: int

    def __str__(self) -> str:
        return " ".join(f"--set {name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True)
class Plan:
    """What a training would need.

    Attributes:
        model: name of the method.
        users: n.
        items: m.
        pairs: training pairs.
        memory: the peak and what it is made of.
        limit: bytes it should stay within.
        seconds: of an epoch and of a validation.
        epochs: at most.
        validations: at most.
        changes: settings with which it fits, the mildest first; empty when it fits already, or if none is known.
    """

    model: str
    users: int
    items: int
    pairs: int
    memory: Forecast
    limit: int
    seconds: Seconds
    epochs: int
    validations: int
    changes: tuple[Change, ...]

    @property
    def fits(self) -> bool:
        """Whether the peak stays within the limit."""
        return self.memory.peak <= self.limit

    @property
    def seconds_in_all(self) -> float:
        """Seconds of all epochs and validations; early stopping can only shorten it."""
        return self.epochs * self.seconds.epoch + self.validations * self.seconds.validation

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {**asdict(self), "fits": self.fits, "seconds_in_all": self.seconds_in_all}


def make_plan(model: Model, parts: Parts, limit: int | None = None) -> Plan:
    """Return what training the model on these parts would need.

    Args:
        model: untrained, on the CPU.
        parts: the data as it was read; its memory counts as it stands now.
        limit: bytes to stay within; nine tenths of the machine's memory by default.

    Raises:
        ConfigError: the model is not trained in epochs, or in steps of its own kind.
    """
    if isinstance(model, TrainedModel) and not isinstance(model, GradientModel):
        raise ConfigError(
            f"{model.name} has steps of its own kind, which cannot be planned; try it with --set epochs=1"
        )
    if not isinstance(model, GradientModel):
        raise ConfigError(f"{model.name} is not trained in epochs, so there is nothing to plan; train it")
    train, valid = parts.train, parts.valid if len(parts.valid) else None
    shape = Shape(train.num_users, train.num_items, len(train), valid is not None)
    read = peak_memory()
    warm_up(model, shape.validates)
    process = memory_now()
    memory = forecast(model, shape, process)
    memory = Forecast(max(memory.peak, read), memory.parts, memory.basis)
    limit = limit or round(SHARE_OF_MACHINE * memory_of_machine())
    return Plan(
        model=model.name,
        users=shape.num_users,
        items=shape.num_items,
        pairs=shape.num_pairs,
        memory=memory,
        limit=limit,
        seconds=measure_seconds(model, train, valid),
        epochs=model.settings.epochs,
        validations=-(-model.settings.epochs // model.settings.validate_every) if shape.validates else 0,
        changes=() if memory.peak <= limit else tuple(changes_that_fit(model, shape, process, limit)),
    )


def forecast(model: GradientModel, shape: Shape, process: int) -> Forecast:
    """Return the peak memory of a training: counted where a count is written, measured on a small sample elsewhere."""
    if isinstance(model.settings, RankformerSettings):
        return forecast_rankformer(shape, model.settings, process)
    return forecast_measured(model, shape, process)


def changes_that_fit(model: GradientModel, shape: Shape, process: int, limit: int) -> Iterator[Change]:
    """Yield up to three settings whose counted peak stays within the limit, each lower than the one before it.

    Those that change the result least come first. Without a written count nothing is yielded: measuring every choice
    would take longer than it is worth.
    """
    settings = model.settings
    if not isinstance(settings, RankformerSettings):
        return
    found, lowest = 0, limit + 1
    for proposal in _proposals(settings):
        peak = forecast_rankformer(shape, settings.replace(**proposal), process).peak
        if peak < lowest and found < 3:
            found, lowest = found + 1, peak
            yield Change(proposal, peak)


def _proposals(settings: RankformerSettings) -> Iterator[dict[str, Any]]:
    """Yield changes from those that give the same embeddings to those that give a smaller model."""
    thrifty = {} if settings.activations == "recompute" else {"activations": "recompute"}
    if thrifty:
        yield thrifty
    if settings.activations == "float32":
        yield {"activations": "bfloat16"}
    for layers in range(settings.num_layers - 1, 0, -1):
        yield {**thrifty, "num_layers": layers}
    width = settings.embedding_dim // 2
    while width >= _SMALLEST_WIDTH:
        yield {**thrifty, "embedding_dim": width}
        width //= 2
