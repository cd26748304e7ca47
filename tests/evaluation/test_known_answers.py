"""Popularity, whose answers on real data are known to six decimals."""

import os
from pathlib import Path

import numpy as np
import pytest

from rankformer.data.interactions import Interactions
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.popularity import Popularity

ROOT = os.environ.get("RANKFORMER_DATA")
NAMES = ("ndcg@20", "recall@20", "recall_capped@20")


def recommender_of(train):
    return Popularity().fit(train).recommender


def test_duplicates_count_and_ties_go_to_the_lower_item():
    train = Interactions.from_indices([0, 0, 1, 1], [3, 3, 2, 1], 3, 5)
    rows = recommender_of(train).recommend([2], k=5).to_dicts()
    assert [(row["item_id"], row["score"]) for row in rows] == [(3, 2.0), (1, 1.0), (2, 1.0), (0, 0.0), (4, 0.0)]


def read_parts(name):
    folder = Path(ROOT or "") / name
    if ROOT is None or not folder.is_dir():
        pytest.skip(f"RANKFORMER_DATA names no folder with {name}")
    lines = {part: np.loadtxt(folder / f"{part}.txt", dtype=np.int32) for part in ("train", "valid", "test")}
    num_users, num_items = np.concatenate(list(lines.values())).max(axis=0) + 1
    lines["train+valid"] = np.concatenate([lines["train"], lines["valid"]])
    return {
        part: Interactions.from_indices(pairs[:, 0], pairs[:, 1], num_users, num_items, name=f"{name}/{part}")
        for part, pairs in lines.items()
    }


@pytest.mark.parametrize(
    ("name", "learnt_from", "expected", "users"),
    [
        ("ali-display", "train", (0.022642, 0.038705, 0.038444), 14_814),
        ("epinions", "train", (0.026281, 0.047545, 0.047710), 15_295),
        ("yelp2018-lightgcn", "train", (0.010061, 0.012503, 0.012894), 31_668),
        ("yelp2018-lightgcn", "train+valid", (0.010114, 0.012451, 0.012854), 31_668),
    ],
)
def test_known_answers_on_real_splits_catch_any_change_of_protocol(name, learnt_from, expected, users):
    parts = read_parts(name)
    result = evaluate(recommender_of(parts[learnt_from]), parts["test"], metrics=NAMES)
    assert result.protocol.users == users
    np.testing.assert_allclose([result.metrics[metric] for metric in NAMES], expected, rtol=0, atol=5.1e-7)
