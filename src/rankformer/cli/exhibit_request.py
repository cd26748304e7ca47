"""What `rankformer reproduce` is asked for, put together from flags, datasets and the configurations of rows."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankformer.cli.progress import busy
from rankformer.errors import AbsentDataError, ConfigError, DataError
from rankformer.runs.configuration import chosen_model, chosen_settings, read_config

if TYPE_CHECKING:
    from rankformer.research.cells import DataCard
    from rankformer.research.registry import Exhibit
    from rankformer.research.request import Request, RowSettings


def build_request(exhibit: "Exhibit", given: dict[str, Any], seeds: int | None, configs: Path) -> "Request":
    """Return what the flags ask of an exhibit, its datasets loaded.

    Args:
        exhibit: what is reproduced.
        given: the flags that were given, by name.
        seeds: how many; the exhibit's own number if unsaid.
        configs: folder with DATASET/MODEL.toml.
    """
    from rankformer.research.request import Request

    datasets, absent = _datasets(given.get("dataset")) if exhibit.needs_data else ((), ())
    options: dict[str, Any] = {name: given[name] for name in ("epochs", "step", "layers") if name in given}
    if "alphas" in given:
        options["alphas"] = _numbers("--alphas", given["alphas"])
    if "step" in given and not 0 < given["step"] <= 1:
        raise ConfigError(f"--step {given['step']}: expected a step that divides 1, such as 0.1 or 0.2")
    if "methods" in given:
        options["methods"] = _methods(given["methods"])
    return Request(
        datasets=datasets,
        absent=absent,
        seeds=tuple(range(seeds or exhibit.seeds)),
        settings_of=settings_from(configs, {card.name: card for card in datasets}),
        **options,
    )


def _datasets(names: list[str] | None) -> tuple[tuple["DataCard", ...], tuple[tuple[str, str], ...]]:
    """Return the cards of the datasets that are here, and those that are not with the reason."""
    from rankformer.data.registry import remedy_for
    from rankformer.data.source import DataSource
    from rankformer.research.cells import DataCard
    from rankformer.research.published import PAPER_DATASETS

    cards, absent = [], []
    missing: DataError | None = None
    for name in dict.fromkeys(names or PAPER_DATASETS):
        try:
            with busy(f"reading {name}"):
                cards.append(DataCard.of(DataSource(source=name)))
        except AbsentDataError as error:
            missing = missing or error
            absent.append((name, f"its files are not here; {remedy_for(name)}"))  # folders are no reader's business
    if missing is not None and not cards:
        raise missing
    twice = [card.name for card in cards if sum(card.name == other.name for other in cards) > 1]
    if twice:
        raise ConfigError(f"two datasets are called {twice[0]!r}; reproduce them one at a time")
    return tuple(cards), tuple(absent)


def settings_from(folder: Path, cards: dict[str, "DataCard"]) -> Callable[[str, str], "RowSettings"]:
    """Return a function from dataset and method to the settings of that row: its file's, or else the defaults."""
    from rankformer.models.registry import model_class
    from rankformer.research.request import RowSettings

    def settings_of(dataset: str, method: str) -> RowSettings:
        path = folder / dataset / f"{method}.toml"
        model, data = model_class(method), shlex.quote(cards[dataset].source.source)
        if not path.is_file():
            command = f"rankformer train {data} --model {method} --out RUN"
            return RowSettings(model.settings_class().model_dump(), "the method's defaults", command)
        content = read_config(path)
        if "data" in content:
            raise ConfigError(f"{path} has a [data] table; every row of an exhibit reads the data alike, leave it out")
        chosen_model(content, method)
        command = f"rankformer train {data} --config {shlex.quote(path.as_posix())} --out RUN"
        return RowSettings(chosen_settings(model, content, ()), path.as_posix(), command)

    return settings_of


def _methods(text: str) -> tuple[str, ...]:
    from rankformer.research.comparison import METHODS

    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"--methods: {name!r} is no row of the table; expected some of {', '.join(METHODS)}")
    if not names:
        raise ConfigError("--methods is empty; name at least one, such as rankformer,lightgcn")
    return names


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 <= number < float("inf") for number in numbers):
        raise ConfigError(f"{flag} {text}: expected numbers from 0 up with commas, such as 0,1,2,4")
    return numbers
