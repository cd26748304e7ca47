"""What the tests of all adapters share: the demo's log, and models of it."""

import os

import pytest

from rankformer.data.demo import demo_parts
from rankformer.models.registry import MODELS

# Warnings that these libraries, or what they are built on, raise themselves; any other is an error as everywhere.
THEIR_WARNINGS = (
    "ignore::DeprecationWarning",
    "ignore::PendingDeprecationWarning",
    "ignore::FutureWarning",
    "ignore:Method expects CSR input",
    "ignore:.*unsafe cast from uint64 to int64.*",  # numba, in what ranx compiles
    "ignore:.*invalid escape sequence.*:SyntaxWarning",
)
SMALL = {"embedding_dim": 8, "epochs": 2, "validate_every": 2, "num_layers": 1}
BESIDES = {"blend": {"members": "ease,item-knn", "tune": False}}


def pytest_configure(config):
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    for line in THEIR_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
    config.addinivalue_line("markers", "eval: LensKit's mark of tests that measure accuracy")


def small_settings(name):
    """Settings with which a model of this name fits in no time."""
    fields = MODELS[name].settings_class.model_fields
    small = {setting: value for setting, value in SMALL.items() if setting in fields}
    return {**small, **BESIDES.get(name, {})}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Some of these libraries write files where they are started."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def parts():
    """The demo's train, valid and test parts."""
    return demo_parts()


@pytest.fixture(scope="session")
def ease(parts):
    """One trained model."""
    return MODELS["ease"]().fit(parts.train)
