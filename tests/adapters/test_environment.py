"""The environment of these tests: what is pinned is what is imported, and torch is the one of the main environment."""

from pathlib import Path

import pytest
from tests.side_environment import is_installed, pinned, shares_torch


@pytest.mark.parametrize("requirement", pinned(Path(__file__).parent), ids=lambda requirement: requirement.name)
def test_the_pinned_version_is_installed(requirement):
    assert is_installed(requirement)


def test_torch_is_shared_with_the_main_environment():
    assert shares_torch()
