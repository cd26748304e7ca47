from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankformer.data.source import DataSource
from rankformer.models.registry import model_class
from rankformer.research.content import Table
from rankformer.research.request import Request, RowSettings
from rankformer.research.results import Dataset, pack

TINY = {
    "rankformer": {"epochs": 4, "validate_every": 2, "embedding_dim": 4, "num_layers": 1, "initialization": "normal"},
    "lightgcn": {"epochs": 4, "validate_every": 2, "embedding_dim": 4, "num_layers": 1},
    "mf": {"epochs": 4, "validate_every": 2, "embedding_dim": 4},
}


def write_parts(folder: Path, users: int = 24, items: int = 18, seed: int = 0) -> Path:
    """Write train, valid and test of users who like the items of their own colour."""
    rng = np.random.default_rng(seed)
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for user in range(users):
        liked = [item for item in range(items) if (user + item) % 3 == 0 or rng.random() < 0.1]
        for place, item in enumerate(rng.permutation(liked)):
            lines["test" if place == 0 else "valid" if place == 1 else "train"].append(f"{user} {item}")
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in lines.items():
        (folder / f"{part}.txt").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return write_parts(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="session")
def data(folder) -> Dataset:
    return Dataset.of(DataSource(source=str(folder)))


def tiny_settings(dataset: str, method: str) -> RowSettings:
    settings = model_class(method).settings_class(**TINY.get(method, {})).hyperparameters()
    return RowSettings(settings, "made up for tests")


@pytest.fixture
def request_for(data) -> Callable[..., Request]:
    def build(**options: object) -> Request:
        given = {"datasets": (data,), "absent": (), "seeds": (0,), "settings_of": tiny_settings, **options}
        return Request(**given)

    return build


NOISE = np.random.default_rng(0).random(400) * 0.1


def made_up(score: float, workers: int = 1) -> dict[str, object]:
    """A training's result in which every user is near `score`, so that each outcome can be had."""
    users = np.clip(score + NOISE - NOISE.mean(), 0, 1)
    names = ("ndcg@20", "recall@20", "recall_capped@20")
    history = {"epochs": 40, "best_epoch": 20, "seconds_per_epoch": 0.5, "seconds": 30.0, "seconds_to_best": 15.0}
    return {
        "metrics": dict.fromkeys(names, float(users.mean())),
        "per_user": {name: pack(users) for name in names},
        "history": history,
        "failed": None,
        "commit": "0123456789ab",
        "conditions": {"threads": 1, "workers": workers, "device": "cpu"},
        "versions": {},
        "protocol": {},
    }


def called(data: Dataset, name: str = "ali-display") -> Dataset:
    """The same data under a name of the paper's."""
    return replace(data, name=name)


def table_row(table: Table, name: str) -> dict[str, str]:
    return next(dict(zip(table.headings, row, strict=True)) for row in table.rows if row[0] == name)
