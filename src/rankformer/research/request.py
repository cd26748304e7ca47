"""What is asked of an exhibit: which data, seeds and settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankformer.errors import ConfigError
from rankformer.models.registry import MODELS, model_class
from rankformer.research.cells import Cell, DataCard, training_cell

DEFAULT_ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
PAPER_STEP = 0.1
SEEDLESS = frozenset({"popularity", "item-knn", "ease"})  # nothing is drawn at random: one seed says it all


class RowSettings(NamedTuple):
    """The settings of one row, where they come from, and the command that trains it by itself."""

    settings: dict[str, Any]
    origin: str
    command: str


@dataclass(frozen=True)
class Request:
    """What to show and how far to go.

    Attributes:
        datasets: those that are there.
        absent: name and reason of those that are not.
        seeds: each cell is computed with each of them.
        settings_of: the settings of a method on a dataset.
        methods: rows of the tables; None for all.
        epochs: bound on every training; not None makes the report a trial.
        step: of the grid over tau.
        alphas: the grid over alpha.
        layers: the deepest stack of untrained layers.
    """

    datasets: tuple[DataCard, ...]
    absent: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    settings_of: Callable[[str, str], RowSettings]
    methods: tuple[str, ...] | None = None
    epochs: int | None = None
    step: float = PAPER_STEP
    alphas: tuple[float, ...] = DEFAULT_ALPHAS
    layers: int = 10

    def wants(self, method: str) -> bool:
        """Whether a method is among the rows asked for."""
        return self.methods is None or method in self.methods

    def row(self, data: DataCard, method: str, variant: str = "", **changes: Any) -> list[Cell]:
        """Return the cells of one row, one per seed; none for a method that this version lacks."""
        if method not in MODELS:
            return []
        settings = self.settings(data, method, **changes)
        seeds = self.seeds[:1] if method in SEEDLESS else self.seeds
        return [training_cell(data, method, settings, seed, variant) for seed in seeds]

    def settings(self, data: DataCard, method: str, **changes: Any) -> dict[str, Any]:
        """Return a method's full settings on a dataset with some of them changed, checked."""
        settings = {**self.settings_of(data.name, method).settings, **changes}
        if self.epochs is not None and "epochs" in settings:
            settings["epochs"] = min(settings["epochs"], self.epochs)
            settings["validate_every"] = min(settings["validate_every"], settings["epochs"])
        return model_class(method).settings_class(**settings).model_dump(mode="json")

    def taus(self) -> tuple[float, ...]:
        """Return the grid over tau from 0 to 1."""
        count = round(1 / self.step)
        if abs(count * self.step - 1) > 1e-9:
            raise ConfigError(f"--step {self.step}: expected a step that divides 1, such as 0.1, 0.2 or 0.25")
        return tuple(round(number / count, 10) for number in range(count + 1))
