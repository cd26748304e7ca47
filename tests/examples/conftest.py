from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """A function that imports an example by its name, as a user does who has the folder on the path."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return import_module
