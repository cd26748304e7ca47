"""What must hold in an environment that `tools/side-environment` made; test_environment.py of its folder asks it."""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from packaging.requirements import Requirement


def pinned(folder):
    """The requirements of a folder that apply here."""
    listed = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in listed if line and not line.startswith("#")]
    return [each for each in found if each.marker is None or each.marker.evaluate()]


def is_installed(requirement):
    return requirement.specifier.contains(version(requirement.name), prereleases=True)


def shares_torch():
    """Whether torch is the one of the main environment."""
    return not Path(torch.__file__).is_relative_to(sys.prefix)
