"""README.md of a run folder: true to the manifest, and nobody's business but the reader's."""

import json
from dataclasses import replace

import pytest

from rankformer.runs.manifest import read_manifest
from rankformer.runs.model_card import CARD, card_of
from rankformer.runs.saved import load_run, save_run

from .test_saved import make_run


@pytest.fixture
def folder(tmp_path):
    metrics, data = {"ndcg@20": 0.123456, "recall@20": 0.5}, {"name": "a|b\n<script> 😀", "users": 1200}
    save_run(tmp_path, replace(make_run(), metrics=metrics, data=data))
    return tmp_path


def test_what_it_says(folder):
    text = (folder / CARD).read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    values = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in front.splitlines())}
    assert values["library_name"] == "rankformer"
    [index] = values["model-index"]
    assert index["results"][0]["metrics"][0] == {"type": "ndcg@20", "value": 0.1235, "name": "ndcg@20"}
    assert "| ndcg@20 | 0.1235 |" in body
    assert "| users | 1,200 |" in body
    assert "a\\|b \\<script\\> 😀" in body
    assert "| --- |" in body


def test_a_run_without_a_card_or_with_an_edited_one_loads(folder):
    (folder / CARD).write_text("mine", encoding="utf-8")
    load_run(folder)
    save_run(folder, make_run(seed=2))
    assert (folder / CARD).read_text(encoding="utf-8") == "mine"
    (folder / CARD).unlink()
    load_run(folder)


def test_a_card_that_nobody_edited_is_replaced_with_its_run(folder):
    save_run(folder, replace(make_run(), metrics={"ndcg@20": 0.9}))
    assert "| ndcg@20 | 0.9000 |" in (folder / CARD).read_text(encoding="utf-8")
    assert CARD not in read_manifest(folder)["files"]


def test_one_more_line_makes_it_the_users(folder):
    with open(folder / CARD, "a", encoding="utf-8") as stream:
        stream.write("We use this in the shop.\n")
    save_run(folder, replace(make_run(), metrics={"ndcg@20": 0.9}))
    assert "in the shop" in (folder / CARD).read_text(encoding="utf-8")
    assert "0.9000" not in (folder / CARD).read_text(encoding="utf-8")


def test_a_link_is_left_alone(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("other") / "notes.md"
    target.write_text("notes")
    (folder / CARD).unlink()
    (folder / CARD).symlink_to(target)
    save_run(folder, make_run(seed=2))
    assert target.read_text() == "notes"


def test_without_metrics(tmp_path):
    save_run(tmp_path, replace(make_run(), metrics={}))
    assert "model-index" not in card_of(read_manifest(tmp_path))
    assert "## Metrics" not in card_of(read_manifest(tmp_path))
