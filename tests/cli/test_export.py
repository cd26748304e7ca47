"""export on a finished run."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from rankformer.export import targets
from rankformer.export.targets import NumpyArrays

from .conftest import CLICK_COLUMNS

TARGETS_HERE = ["parquet", "numpy", "pgvector", *(["faiss"] if find_spec("faiss") else [])]


@pytest.mark.parametrize("to", TARGETS_HERE)
def test_the_shape_of_the_json(cli, finished, tmp_path, to):
    outcome = cli("export", finished, "--to", to, "--out", tmp_path / "out", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    document = outcome.json
    assert list(document) == ["out", "metadata", "self_test"]
    assert document["out"] == str(tmp_path / "out")
    metadata = document["metadata"]
    assert (metadata["to"], metadata["num_users"], metadata["num_items"]) == (to, 12, 10)
    assert metadata["settings"]["embedding_dim"] == metadata["dimension"] == 8
    assert (document["self_test"]["users"], document["self_test"]["k"]) == (12, 10)
    assert (tmp_path / "out").exists()


def test_what_people_see(cli, finished, tmp_path):
    outcome = cli("export", finished, "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.out == (
        f"exported 12 users and 10 items of dimension 8 to {tmp_path / 'out'}; "
        "the best 10 items of 12 users are the run's own (by numpy product)\n"
    )
    assert outcome.err == ""


def test_a_stream_on_stdout(cli, finished, tmp_path):
    outcome = cli("export", finished, "--to", "pgvector", "--out", "-", "--prefix", "shop_")
    assert outcome.code == 0
    assert outcome.err.startswith("done: exported 12 users and 10 items")
    cli("export", finished, "--to", "pgvector", "--out", tmp_path / "out.sql", "--prefix", "shop_")
    assert outcome.out == (tmp_path / "out.sql").read_text(encoding="utf-8")
    assert "CREATE TABLE shop_items (" in outcome.out
    assert "Product 4" in outcome.out


def test_an_export_that_is_there_already(cli, finished, tmp_path):
    again = ["export", finished, "--to", "parquet", "--out", tmp_path / "out"]
    assert cli(*again).code == 0
    refused = cli(*again)
    assert refused.code == 2
    assert "--overwrite" in refused.error
    assert cli(*again, "--overwrite").code == 0


def test_a_failed_self_test_is_our_mistake(cli, finished, tmp_path, monkeypatch):
    class Mangled(NumpyArrays):
        def write(self, contents, folder):
            super().write(contents, folder)
            np.save(folder / "items.npy", contents.tables.items.vectors[::-1])

    monkeypatch.setattr(targets, "NumpyArrays", Mangled)
    outcome = cli("export", finished, "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "failed its self-test" in outcome.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--to", "csv", "--out", "x"], "cannot export to 'csv'"),
        (["--to", "parquet"], "missing option '--out'"),
        (["--to", "parquet", "--out", "-"], "cannot go to stdout"),
        (["--to", "pgvector", "--out", "-", "--json"], "both want stdout"),
        (["--to", "parquet", "--out", "x", "--prefix", "a_"], "--prefix is for --to pgvector"),
        (["--to", "pgvector", "--out", "x", "--prefix", "a;"], "prefix='a;'"),
    ],
)
def test_wrong_options(cli, finished, tmp_path, monkeypatch, extra, message):
    monkeypatch.chdir(tmp_path)
    outcome = cli("export", finished, *extra)
    assert outcome.code == 2
    assert message in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_a_method_without_embeddings_is_refused(cli, clicks, tmp_path):
    run = tmp_path / "run"
    assert cli("train", clicks, *CLICK_COLUMNS, "--model", "item-knn", "--out", run).code == 0
    outcome = cli("export", run, "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "item-knn does not score by embeddings" in outcome.error


def test_a_run_that_is_not_one(cli, tmp_path):
    outcome = cli("export", tmp_path / "nothing", "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "is not a folder" in outcome.error


def test_the_metadata_of_a_folder_is_the_one_shown(cli, finished, tmp_path):
    shown = cli("export", finished, "--to", "parquet", "--out", tmp_path / "out", "--json").json["metadata"]
    assert json.loads((tmp_path / "out" / "metadata.json").read_bytes()) == shown
