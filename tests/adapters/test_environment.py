"""The environment of these tests: what is pinned is what is imported, and torch is the one of the main environment."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

LISTED = Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8").splitlines()
PINNED = [Requirement(line) for line in LISTED if line and not line.startswith("#")]


@pytest.mark.parametrize("requirement", PINNED, ids=lambda requirement: requirement.name)
def test_the_pinned_version_is_installed(requirement):
    if requirement.marker is None or requirement.marker.evaluate():
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)


def test_torch_is_shared_with_the_main_environment():
    assert not Path(torch.__file__).is_relative_to(sys.prefix)
