"""Run folders of version 1, which rankformer 0.1 wrote: written here by hand, they answer as the run of today."""

import hashlib
import json

import pytest
from safetensors.torch import load_file, save_file
from tests.logs import random_log

from rankformer import load_model
from rankformer.errors import RunFolderError
from rankformer.evaluation.protocol import Protocol
from rankformer.models.difformer import DIFFormer
from rankformer.models.ease import EASE
from rankformer.models.gformer import GFormer
from rankformer.models.ials import IALS
from rankformer.models.lightgcn import LightGCN
from rankformer.models.rankformer import Rankformer
from rankformer.models.xsimgcl import XSimGCL
from rankformer.runs.legacy import upgrade_settings
from rankformer.runs.manifest import FILES, MANIFEST, read_manifest
from rankformer.runs.saved import load_run

LOG = random_log()
SMALL = {"embedding_dim": 4, "epochs": 2}


def write_version_1(folder, settings, change=lambda manifest: None):
    """Turn a saved run into one of version 1.

    Args:
        folder: of the run.
        settings: old name of each setting that has a new one.
        change: further changes of the manifest.
    """
    manifest = json.loads((folder / MANIFEST).read_bytes())
    del manifest["checksum"]
    manifest["version"] = 1
    manifest["settings"] = {settings.get(name, name): value for name, value in manifest["settings"].items()}
    scorer = manifest["scorer"]
    manifest["fold_in"] = scorer.pop("fold_in", None)
    if manifest["fold_in"] is not None and "own_embedding" in manifest["fold_in"]:
        manifest["fold_in"]["own_row"] = manifest["fold_in"].pop("own_embedding")
    if "count_duplicates" in scorer:
        scorer["count_repeats"] = scorer.pop("count_duplicates")
        tensors = load_file(folder / "embeddings.safetensors")
        save_file({f"scorer.{name}": value for name, value in tensors.items()}, folder / "embeddings.safetensors")
    if manifest["model"] == "ials":  # its regularization was not scaled, neither by the weight nor by frequency
        exponent = manifest["settings"].pop("frequency_exponent")
        assert exponent == manifest["fold_in"].pop("exponent") == 0
        del manifest["fold_in"]["offset"]
        manifest["settings"]["regularization"] *= manifest["settings"]["weight"] - 1
    change(manifest)
    for name in FILES:
        data = (folder / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    def as_bytes(content):
        return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()

    (folder / MANIFEST).write_bytes(as_bytes({**manifest, "seal": hashlib.sha256(as_bytes(manifest)).hexdigest()}))


MODELS = {
    "rankformer": (Rankformer(num_layers=2, **SMALL), {"initialization": "start"}),
    "lightgcn": (LightGCN(**SMALL), {"initialization": "start"}),
    "ease": (EASE(duplicates="count"), {"duplicates": "repeats"}),
    "ials": (
        IALS(embedding_dim=3, iterations=2, frequency_exponent=0, weight=5, regularization=0.5),
        {"iterations": "rounds"},
    ),
}


@pytest.fixture(params=MODELS)
def run(request, tmp_path):
    """A run of version 1, and the model that was saved."""
    model, old_names = MODELS[request.param]
    model.fit(LOG).save(tmp_path / "run")
    write_version_1(tmp_path / "run", old_names)
    return tmp_path / "run", model


def test_it_gives_the_same_lists_and_explanations(run):
    folder, model = run
    again = load_model(folder)
    assert again.settings == model.settings
    assert again.recommend(k=5).table == model.recommend(k=5).table
    history = {"new": [0, 3, 3]}
    assert again.recommend(histories=history).table == model.recommend(histories=history).table
    assert again.explain(1, 2) == model.explain(1, 2)
    assert again.similar_items(1).table == model.similar_items(1).table


def test_it_can_be_saved_as_a_run_of_today(run, tmp_path):
    folder, model = run
    load_model(folder).save(tmp_path / "today")
    assert read_manifest(tmp_path / "today")["version"] == 2
    assert load_model(tmp_path / "today").recommend(k=5).table == model.recommend(k=5).table


def test_a_flipped_bit_is_refused_by_name(run):
    folder, _ = run
    for name in (MANIFEST, *FILES):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(RunFolderError, match=name):
            load_run(folder)
        (folder / name).write_bytes(whole)


def test_a_run_from_before_there_were_kinds_of_scorers_is_one_of_embeddings(tmp_path):
    model = LightGCN(**SMALL).fit(LOG)
    model.save(tmp_path / "run")

    def change(manifest):
        del manifest["scorer"], manifest["fold_in"]

    write_version_1(tmp_path / "run", {"initialization": "start"}, change)
    again = load_model(tmp_path / "run")
    assert again.recommend(k=5).table == model.recommend(k=5).table
    assert not again.recommender.can_fold_in


def test_weights_between_items_have_nothing_to_fold_into(tmp_path):
    EASE().fit(LOG).save(tmp_path / "run")
    rule = {"rule": "least-squares", "weight": 2, "regularization": 1}
    write_version_1(tmp_path / "run", {"duplicates": "repeats"}, lambda manifest: manifest.update(fold_in=rule))
    with pytest.raises(RunFolderError, match="scorer has no 'fold_in'"):
        load_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [
        (XSimGCL, {"start": "xavier", "penalty": "table"}, {"initialization": "xavier-uniform", "l2_on": "initial"}),
        (XSimGCL, {"contrast_layer": 2, "penalty": "final"}, {"cl_layer": 2, "l2_on": "final"}),
        (DIFFormer, {"alpha": 0.25, "graph_weight": -1.0}, {"update_weight": 0.25, "graph_weight": None}),
        (DIFFormer, {"graph_weight": 0.5}, {"graph_weight": 0.5}),
        (GFormer, {"l2": 0.25}, {"weight_decay": 0.5}),
    ],
)
def test_settings_keep_their_meaning_under_their_new_names(model, old, new):
    found = upgrade_settings(model.name, old)
    assert found == new
    model(**found)


def test_a_protocol_of_version_1_calls_interactions_lines():
    record = {"split": "s", "split_hash": "h", "k": [20], "mask": "train", "users": 3, "test_lines": 9}
    record |= {"users_unknown": 0, "test_lines_unknown": 1, "seed": 0, "versions": {}, "backend": "cpu"}
    found = Protocol.from_dict(record)
    assert (found.test_interactions, found.test_interactions_unknown, found.k) == (9, 1, (20,))
