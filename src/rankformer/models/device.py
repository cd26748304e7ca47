"""Where a model computes."""

import torch

from rankformer.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """Return the device of a name such as cpu, cuda or cuda:1; auto takes CUDA when present."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device={name!r} is not a device; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}: no CUDA device is present; use cpu or auto")
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device={name!r} is not supported; use auto, cpu or cuda")
    return device
