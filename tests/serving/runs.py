"""Small runs with known vectors, for a service to serve."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from rankformer.data.id_map import IdMap
from rankformer.data.interactions import Interactions
from rankformer.data.items import Items
from rankformer.runs.saved import Run, save_run
from rankformer.scoring.blend import BlendScorer
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.fold_in import WeightedSum
from rankformer.scoring.recommender import Recommender

USERS, ITEMS, DIMENSION, INTERACTIONS = 1000, 80, 8, 5000
LOG = [
    {"event": "epoch", "epoch": 1, "loss": 0.5, "seconds": 0.1},
    {"event": "validation", "epoch": 1, "ndcg@20": 0.25, "best": True, "seconds": 0.2},
    {"event": "validation", "epoch": 2, "ndcg@20": float("nan"), "best": False, "seconds": 0.4},
]


def make_recommender(seed: int = 0, user_ids: pa.Array = None, item_ids: pa.Array = None, fold_in: bool = True):
    user_map = IdMap(pa.array([f"u{number}" for number in range(USERS)]) if user_ids is None else user_ids)
    item_map = IdMap(pa.array([f"i{number}" for number in range(ITEMS)]) if item_ids is None else item_ids)
    n, m = len(user_map), len(item_map)
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    users, items = (rng.integers(0, count, INTERACTIONS).astype(np.int32) for count in (n, m))
    keep = users < n - 1  # the last user has nothing
    titles = pa.array([None if number % 7 == 3 else f"Title {number} <b>é" for number in range(m)])
    history = Interactions(users[keep], items[keep], user_map, item_map, item_titles=titles, name="toy")
    vectors = [torch.randn(count, DIMENSION, generator=generator) for count in (n, m)]
    rule = WeightedSum(torch.randn(m, DIMENSION, generator=generator), 1.0, own_embedding=True) if fold_in else None
    return Recommender(Embeddings(*vectors, rule), user_map, item_map, history)


def write_run(folder: Path, seed: int = 0, event_weights: dict[str, float] | None = None, **options: Any) -> Path:
    recommender = make_recommender(seed, **options)
    data: dict[str, Any] = {"source": {"source": "/somewhere/private/clicks.csv"}, "name": "clicks"}
    if event_weights is not None:
        data["source"]["event_weights"] = event_weights
    metrics = {"ndcg@20": 0.25}
    save_run(folder, Run("toy", {"metric": "ndcg@20"}, seed, recommender, log=LOG, data=data, metrics=metrics))
    return folder


def write_two_runs(folder: Path) -> Path:
    """A folder with two runs, `one` and `two`."""
    for seed, name in enumerate(("one", "two")):
        write_run(folder / name, seed)
    return folder


def point(link: Path, target: Path) -> None:
    """Let a link point to a target, in one step."""
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    fresh.replace(link)


def write_shop(folder: Path) -> Path:
    """A run with attributes of its items, and two more items that nobody has: new-0 and new-1."""
    count = ITEMS + 2
    columns = {
        "item_id": [*(f"i{number}" for number in range(ITEMS)), "new-0", "new-1"],
        "brand": [f"b{number % 4}" for number in range(count)],
        "price": [number / 2 for number in range(count)],
        "tags": [["<b>red</b>"] if number % 5 == 0 else [] for number in range(count)],
        "in_stock": [number % 3 > 0 for number in range(count)],
    }
    recommender = make_recommender().with_items(Items.from_arrow(pa.table(columns)))
    save_run(folder, Run("toy", {}, 0, recommender, data={"name": "shop"}))
    return folder


MEMBERS = [
    {"label": "table", "member": "mf", "settings": {}, "choices": {}, "weight": 0.25, "value": 0.2, "without": 0.3},
    {"label": "graph", "member": "lightgcn", "settings": {"l2": 0.1}, "choices": {"epochs": 3}, "weight": 0.75}
    | {"value": 0.3, "without": 0.2},
]
BLEND_REPORT: dict[str, Any] = {"event": "blend", "value": 0.35, "refused": {"ease": "too large"}, "seconds": 9.0}
BLEND_REPORT["members"] = [{**member, "seconds": 1.5} for member in MEMBERS]


def write_blend(folder: Path) -> Path:
    """Write a run of two members, of which the second cannot score new users."""
    recommender, rng = make_recommender(), np.random.default_rng(4)
    table = Embeddings(*(torch.from_numpy(rng.normal(size=(count, 3))).float() for count in (USERS, ITEMS)))
    scorer = BlendScorer.of({"graph": recommender.scorer, "table": table}, {"graph": 0.75, "table": 0.25})
    log = [*LOG[:2], BLEND_REPORT]
    save_run(folder, Run("blend", {"metric": "ndcg@20"}, 0, replace(recommender, scorer=scorer), log=log))
    return folder


def write_full_run(folder: Path) -> Path:
    """A run with everything that a folder can hold: a refitted blend, parts, weights, attributes and cold items."""
    base = make_recommender()
    whole, count = base.history, len(base.history) - 500  # the last ones were not fitted
    labels = np.repeat(np.array([0, 2], np.int8), (count, 500))
    known = replace(whole, labels=labels)
    history = replace(whole.rows(np.arange(count)), weights=np.ones(count, np.float32))
    scorers = {"first": base.scorer, "second": make_recommender(seed=1).scorer}
    scorer = BlendScorer.of(scorers, {"first": 0.75, "second": 0.25})
    recommender = Recommender(scorer, base.user_ids, base.item_ids, history, known=known)
    number = np.arange(ITEMS + 2)
    columns = {
        "item_id": [*(f"i{each}" for each in range(ITEMS)), "new-0", "new-1"],
        "brand": [f"b{each % 4}" for each in number],
        "price": number / 2,
        "since": pa.array(number.astype(np.int32)).cast(pa.date32()),
    }
    lists = np.tile(np.arange(20), (len(np.unique(known.users[count:])), 1))
    run = Run(
        "blend",
        {"metric": "ndcg@20"},
        0,
        recommender.with_items(Items.from_arrow(pa.table(columns))),
        log=LOG,
        data={"name": "shop"},
        metrics={"ndcg@20": 0.25},
        warm_metrics={"ndcg@20": 0.26},
        lists=lists,
        refit={"interactions": count, "epochs": 5, "members": [{"label": "first", "choices": {}}], "seconds": 1.5},
    )
    save_run(folder, run)
    return folder
