"""The request to an experiment: which data, seeds, methods and configurations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rankformer.errors import ConfigError
from rankformer.models.registry import MODELS, model_class
from rankformer.research.published import FILES, METHODS
from rankformer.research.results import Computation, Dataset
from rankformer.runs.configuration import chosen_settings, read_configuration

SHIPPED = ("best", "paper")  # sets of configurations that come with the package
DEFAULT_ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
PAPER_STEP = 0.1


class RowSettings(NamedTuple):
    """The settings of one row, and where they come from."""

    settings: dict[str, Any]
    origin: str


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of rows, each a registered method or `package.module:Class`, without duplicates."""
    for name in names:
        model_class(name)
    if not names:
        raise ConfigError("--methods is empty; name at least one, such as rankformer,lightgcn")
    return tuple(dict.fromkeys(names))


def parse_alphas(text: str) -> tuple[float, ...]:
    """Return the numbers of a list such as 0,1,2,4, sorted, each once."""
    try:
        numbers = sorted({float(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not all(0 <= number < float("inf") for number in numbers):
        raise ConfigError(f"--alphas {text}: expected numbers from 0 up with commas, such as 0,1,2,4")
    return tuple(numbers)


def configurations(name: str) -> Callable[[str, str], RowSettings]:
    """Return a function from dataset and method to the settings of that row: those of its file, or else the defaults.

    Args:
        name: "best" (chosen on validation), "paper" (the paper's own), or a folder with DATASET/MODEL.toml.
    """
    shipped = name in SHIPPED
    folder = Path(str(FILES)) / "configs" / name if shipped else Path(name)
    if not folder.is_dir():
        raise ConfigError(f"--configs {name}: there is no such folder; expected {', '.join(SHIPPED)} or a folder")

    def settings_of(dataset: str, method: str) -> RowSettings:
        model = model_class(method)
        path = folder / dataset / f"{model.name}.toml"
        if not path.is_file():
            return RowSettings(model.settings_class().hyperparameters(), "default settings")
        content = read_configuration(path)
        if "data" in content:
            raise ConfigError(f"{path} has a [data] table; all rows of an experiment read the data alike, remove it")
        if content.get("model", model.name) != model.name:
            raise ConfigError(f"{path} contradicts its name: its model is {content['model']!r}")
        origin = f"{name}:{dataset}/{model.name}" if shipped else path.as_posix()
        given = chosen_settings(model.settings_class, content, ())
        return RowSettings(model.settings_class(**given).hyperparameters(), origin)

    return settings_of


@dataclass(frozen=True)
class Request:
    """What an experiment shows, and how much it computes."""

    datasets: tuple[Dataset, ...]  # those that are present
    absent: tuple[tuple[str, str], ...]  # name and reason of those that are not
    seeds: tuple[int, ...]  # each row is computed with each of them
    settings_of: Callable[[str, str], RowSettings]  # of a method on a dataset
    methods: tuple[str, ...] | None = None  # rows of the tables; None for all
    epochs: int | None = None  # bound on every training; not None makes the report a trial
    step: float = PAPER_STEP  # of the grid over tau
    alphas: tuple[float, ...] = DEFAULT_ALPHAS
    layers: int = 10  # the deepest stack of untrained layers
    configs: str = "best"  # the name of the set of configurations, for commands

    @property
    def rows(self) -> tuple[str, ...]:
        """The methods to compare: by default the paper's in its order, then every other registered one."""
        return self.methods or tuple(dict.fromkeys((*METHODS, *MODELS)))

    def row(self, data: Dataset, method: str, variant: str = "", **changes: Any) -> list[Computation]:
        """Return the trainings of one row, one per seed; one in all where nothing is drawn at random."""
        settings = self.settings(data, method, **changes)
        seeds = self.seeds[:1] if model_class(method).deterministic else self.seeds
        label = f"{method}{f' {variant}' if variant else ''} on {data.name}"
        return [Computation("training", settings, seed, method, data, f"{label}, seed {seed}") for seed in seeds]

    def settings(self, data: Dataset, method: str, **changes: Any) -> dict[str, Any]:
        """Return a method's full settings on a dataset with some of them changed, checked."""
        row = self.settings_of(data.name, method).settings
        settings = model_class(method).settings_class(**{**row, **changes}).hyperparameters()
        if self.epochs is not None and "epochs" in settings:
            epochs = min(settings["epochs"], self.epochs)
            settings |= {"epochs": epochs, "validate_every": min(settings["validate_every"], epochs)}
        return settings

    def origins(self, method: str) -> str:
        """Return where a method's settings come from, by dataset."""
        return "; ".join(f"{data.name}: {self.settings_of(data.name, method).origin}" for data in self.datasets)

    def taus(self) -> tuple[float, ...]:
        """Return the grid over tau from 0 to 1."""
        count = round(1 / self.step) if 0 < self.step <= 1 else 0
        if not count or abs(count * self.step - 1) > 1e-9:
            raise ConfigError(f"--step {self.step}: expected a step that divides 1, such as 0.1, 0.2 or 0.25")
        return tuple(round(number / count, 10) for number in range(count + 1))
