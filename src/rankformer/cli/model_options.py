"""The options that say which model to use and how: shared by every command that trains or would."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankformer.cli.output import option
from rankformer.tracking import TRACKERS

if TYPE_CHECKING:
    from rankformer.models.base import Model


def use_threads(count: int | None) -> int | None:
    """Compute on so many threads, as soon as the option is parsed; None leaves the number as it is."""
    most = max(64, os.cpu_count() or 1)
    if count is not None and count > most:
        raise typer.BadParameter(f"{count} threads; this machine can use at most {most}")
    if count is not None:
        import torch

        torch.set_num_threads(count)
    return count


def _model_names(incomplete: str) -> list[str]:
    """Return the methods that a shell completes a name to."""
    from rankformer.models.facts import built_in_models

    return [model.name for model in built_in_models() if model.name.startswith(incomplete)]


ModelOption = Annotated[
    str | None,
    option(
        *("NAME", "Use a method of `rankformer models`, or package.module:Class. Default: blend."),
        autocompletion=_model_names,
    ),
]
ConfigOption = Annotated[Path | None, option("FILE", "Read model, seed, settings and data from a TOML file.")]
SetOption = Annotated[list[str] | None, option("KEY=VALUE", "Change a hyperparameter; may be repeated.", "--set")]
DeviceOption = Annotated[str, option("auto|cpu|cuda", "Where to compute.")]
ThreadsOption = Annotated[int | None, option("N", "CPU threads. Default: all cores.", min=1, callback=use_threads)]
TrackOption = Annotated[
    list[str] | None,
    option(
        "|".join(TRACKERS), "Log settings and metrics to trackers, offline; repeated or comma-separated.", "--track"
    ),
]
CallbackOption = Annotated[
    list[str] | None,
    option("MODULE:FUNCTION", "Call a function of your own with each event; may be repeated.", "--callback"),
]


def tracking_options(track: Sequence[str] | None, callback: Sequence[str] | None) -> dict[str, Any]:
    """Return the trackers and functions that flags name, as `tracked` takes them; what is missing is reported now."""
    from rankformer.tracking.tracked import load_callback, tracker_class

    names = list(dict.fromkeys(name.strip() for text in track or () for name in text.split(",")))
    for name in names:
        tracker_class(name)
    return {"trackers": names, "callbacks": [load_callback(name) for name in callback or ()]}


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
