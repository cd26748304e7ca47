"""The numbers of `published.toml`, which says where they come from, by dataset and row; and the reports' notes."""

import tomllib
from importlib import resources
from typing import Any, NamedTuple

FILES = resources.files("rankformer.research")
_CONTENT: dict[str, Any] = tomllib.loads(FILES.joinpath("published.toml").read_text(encoding="utf-8"))


class Score(NamedTuple):
    """Two published numbers."""

    ndcg: float
    recall: float


def _scores(name: str) -> dict[str, dict[str, Score]]:
    return {data: {row: Score(*pair) for row, pair in rows.items()} for data, rows in _CONTENT[name].items()}


NDCG = "ndcg@20"
PAPER_DATASETS: tuple[str, ...] = tuple(_CONTENT["datasets"])
CONTRASTIVE: tuple[str, ...] = tuple(_CONTENT["contrastive"])
METHODS: tuple[str, ...] = (*_CONTENT["plain"], *CONTRASTIVE)
COMPARISON, ABLATION, IMPROVEMENT = map(_scores, ("comparison", "ablation", "improvement"))
RUNTIME: dict[str, dict[str, int]] = _CONTENT["runtime"]
RUNTIME_ROWS: dict[str, list[str]] = _CONTENT["runtime_rows"]
UNTRAINED: dict[str, list[dict[str, Any]]] = _CONTENT["untrained"]  # tau, warm_up, ndcg
AUTHORS_SEED = 12345
NOTES: dict[str, str] = _CONTENT["notes"]


def recall_metric(dataset: str) -> str:
    """Return the metric here that a dataset's published recall is: the paper divides by min(20, test interactions)."""
    return "recall@20" if dataset == "yelp2018-lightgcn" else "recall_capped@20"


def notes_of(experiment: str, **words: str) -> list[str]:
    """Return how to read a report, from `notes.toml`."""
    notes: list[str] = tomllib.loads(FILES.joinpath("notes.toml").read_text(encoding="utf-8"))[experiment]
    return [note.format(**words) for note in notes]
