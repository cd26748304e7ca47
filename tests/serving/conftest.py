import pytest

from rankformer.runs.saved import load_run

from .clients import asking
from .runs import write_run


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A small run; copy it before changing it."""
    return write_run(tmp_path_factory.mktemp("runs") / "toy")


@pytest.fixture(scope="session")
def recommender(run_folder):
    return load_run(run_folder).recommender


@pytest.fixture(scope="session")
def client(run_folder):
    with asking(run_folder) as client:
        yield client
