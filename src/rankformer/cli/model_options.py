"""The options that say which model to use and how: shared by every command that trains or would."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rankformer.models.base import Model


def use_threads(count: int | None) -> int | None:
    """Compute on so many threads; None leaves the number as it is."""
    if count is not None:
        import torch

        torch.set_num_threads(count)
    return count


ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Method, as `rankformer models` lists them, or package.module:Class of your own. Default: rankformer.",
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file with model, seed, settings and data.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a hyperparameter, over the file's; may be repeated."),
]
ThreadsOption = Annotated[  # applied where it is parsed
    int | None,
    typer.Option(min=1, metavar="N", callback=use_threads, help="Threads on the CPU. Default: all cores."),
]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to compute.")]


def build_model(
    configuration: Mapping[str, Any],
    name: str | None = None,
    assignments: Sequence[str] = (),
    seed: int | None = None,
    device: str = "auto",
) -> "Model":
    """Return the model that a configuration and flags describe, not fitted."""
    from rankformer.models.registry import model_class
    from rankformer.runs.configuration import chosen_model, chosen_settings

    method = model_class(chosen_model(configuration, name))
    settings = chosen_settings(method.settings_class, configuration, assignments)
    return method(seed=configuration.get("seed", 0) if seed is None else seed, device=device, **settings)
