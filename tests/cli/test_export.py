"""export on a finished run."""

import json
from importlib.util import find_spec

import pytest

from rankformer.export import exporter
from rankformer.export.numpy_arrays import NumpyArrays, write_array

FORMATS = ["parquet", "numpy", "pgvector", *(["faiss"] if find_spec("faiss") else [])]


@pytest.mark.parametrize("to", FORMATS)
def test_the_shape_of_the_json(cli, finished, tmp_path, to):
    outcome = cli("export", finished, "--to", to, "--out", tmp_path / "out", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    document = outcome.json
    assert list(document) == ["out", "card", "self_test"]
    assert document["out"] == str(tmp_path / "out")
    assert (document["card"]["to"], document["card"]["num_users"], document["card"]["num_items"]) == (to, 12, 10)
    assert document["card"]["settings"]["embedding_dim"] == document["card"]["width"] == 8
    assert (document["self_test"]["users"], document["self_test"]["k"]) == (12, 10)
    assert (tmp_path / "out").exists()


def test_what_people_see(cli, finished, tmp_path):
    outcome = cli("export", finished, "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.out == (
        f"exported 12 users and 10 items of width 8 to {tmp_path / 'out'}; "
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
            write_array(folder / "items.npy", contents.tables.items.vectors[::-1])

    monkeypatch.setitem(exporter.FORMATS, "numpy", Mangled)
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
def test_wrong_wishes(cli, finished, tmp_path, monkeypatch, extra, message):
    monkeypatch.chdir(tmp_path)
    outcome = cli("export", finished, *extra)
    assert outcome.code == 2
    assert message in outcome.error
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_one(cli, tmp_path):
    outcome = cli("export", tmp_path / "nothing", "--to", "numpy", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "is not a folder" in outcome.error


def test_the_card_of_a_folder_is_the_one_shown(cli, finished, tmp_path):
    shown = cli("export", finished, "--to", "parquet", "--out", tmp_path / "out", "--json").json["card"]
    assert json.loads((tmp_path / "out" / "card.json").read_bytes()) == shown
