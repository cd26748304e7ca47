"""Runs to track and export, with nothing sent anywhere."""

import pytest
from tests.cli.conftest import cli as cli
from tests.cli.conftest import write_clicks
from tests.export.conftest import saved as saved

from rankformer.cli.main import run

SMALL = ["--user-column", "visitor", "--item-column", "product", "--title-column", "name", "--seed", "3"]
TINY = [*SMALL, "--model", "rankformer", "--epochs", "4", "--set", "validate_every=2", "--set", "embedding_dim=8"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder with clicks.csv, and no settings of a tracker in the environment."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    write_clicks(tmp_path / "clicks.csv")
    return tmp_path


@pytest.fixture
def shop(here):
    """That folder with a clicks.csv that has the columns the pages name."""
    rows = [
        f"u{user},{item}"
        for user in range(20)
        for item in range(30)
        if (user * 5 + item * 3) % 4 == 0 or item == user % 30
    ]
    (here / "clicks.csv").write_text("\n".join(["user,item", *rows]) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def clicks_run(tmp_path_factory):
    """A finished run on clicks.csv with string users and integer items."""
    folder = tmp_path_factory.mktemp("clicks")
    clicks = write_clicks(folder / "clicks.csv")
    assert run(["train", str(clicks), "--out", str(folder / "shop"), *TINY]) == 0
    return folder / "shop"
