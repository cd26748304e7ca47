import json
import subprocess
import sys

import pytest

from .conftest import CLICK_COLUMNS, TINY


def test_list_says_what_is_here(cli, monkeypatch, tmp_path):
    folder = tmp_path / "epinions"
    folder.mkdir()
    for part in ("train", "valid", "test"):
        (folder / f"{part}.txt").write_text("0 0\n", encoding="utf-8")
    monkeypatch.setenv("RANKFORMER_DATA", str(tmp_path))
    rows = {row["name"]: row for row in cli("data", "list", "--json").json["datasets"]}
    assert rows["demo"]["present"]
    assert rows["demo"]["interactions"] == 20_268
    assert rows["epinions"]["folder"] == str(folder)
    assert not rows["yelp2018"]["present"]
    assert "17,894 x 17,660" in cli("data", "list").out


def test_info_counts(cli, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "train.txt").write_text("1 10\n1 10\n1 11\n2 10\n", encoding="utf-8")
    (folder / "test.txt").write_text("1 10\n3 12\n", encoding="utf-8")
    summary = cli("data", "info", folder, "--format", "pairs", "--json").json
    assert (summary["users"], summary["items"], summary["interactions"], summary["distinct_interactions"]) == (
        3,
        3,
        6,
        4,
    )
    assert summary["density"] == pytest.approx(4 / 9)
    assert summary["parts"]["train"] == {"interactions": 4, "duplicates": 1, "users": 2, "items": 2}
    assert summary["parts"]["valid"]["interactions"] == 0
    assert summary["test_interactions_also_in_train"] == 1
    assert summary["cold"]["test"] == {"users": 1, "items": 1}
    assert summary["train_interactions_per_user"]["max"] == 3
    shown = cli("data", "info", folder, "--format", "pairs")
    assert summary["fingerprint"] in shown.out
    assert "cold users" in shown.out


def test_info_does_not_import_torch():
    script = (
        "import sys; from rankformer.cli.main import run; code = run(['data', 'info', 'demo', '--json']); "
        "print('torch' in sys.modules, 'rankformer.data.summary' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "False True")
    assert json.loads(done.stdout)["interactions"] == 20_268


def test_info_of_an_empty_train_part(cli, clicks):
    assert cli("data", "info", clicks, *CLICK_COLUMNS, "--parts", "0,0,1").code == 0


@pytest.mark.parametrize("written", ["csv", "tsv", "parquet", "jsonl"])
def test_a_split_reads_back_as_the_same_split(cli, clicks, tmp_path, written):
    out = tmp_path / "split"
    document = cli(
        "data", "split", clicks, *CLICK_COLUMNS, "--split-seed", 4, "--out", out, "--as", written, "--json"
    ).json
    assert sorted(entry.name for entry in out.iterdir()) == sorted(
        ["split.json", *(f"{part}.{written}" for part in ("train", "valid", "test"))]
    )
    stored = json.loads((out / "split.json").read_text(encoding="utf-8"))
    assert stored["fingerprint"] == document["fingerprint"]
    assert stored["source"]["split_seed"] == 4
    assert cli("data", "info", out, "--json").json["fingerprint"] == document["fingerprint"]


def test_a_split_can_be_trained_on(cli, clicks, tmp_path):
    shown = cli("data", "split", clicks, *CLICK_COLUMNS, "--out", tmp_path / "split").out
    assert "train on it" in shown
    assert cli("train", tmp_path / "split", "--out", tmp_path / "run", *TINY).code == 0


def test_a_split_leaves_a_used_folder_alone(cli, clicks, tmp_path):
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    outcome = cli("data", "split", clicks, *CLICK_COLUMNS, "--out", tmp_path)
    assert outcome.code == 2
    assert "not an empty folder" in outcome.error
    assert "cannot write '.xlsx'" in cli("data", "split", clicks, "--out", tmp_path / "s", "--as", "xlsx").error


def test_convert(cli, clicks, tmp_path):
    out = tmp_path / "clicks.parquet"
    document = cli("data", "convert", clicks, *CLICK_COLUMNS, "--out", out, "--json").json
    assert document == {"out": str(out), "interactions": document["interactions"]}
    assert cli("data", "info", out, "--json").json["interactions"] == document["interactions"]
    assert "is DATA itself" in cli("data", "convert", out, "--out", out).error
    before = out.read_bytes()
    again = ["data", "convert", clicks, *CLICK_COLUMNS, "--out", out, "--title-column", ""]
    assert "exists; choose another --out, or replace it with --overwrite" in cli(*again).error
    assert out.read_bytes() == before
    assert cli(*again, "--overwrite").code == 0
    assert out.read_bytes() != before


def test_a_file_of_another_kind_is_read_with_the_flags_that_its_errors_name(cli, tmp_path):
    path, bad = tmp_path / "log.csv", tmp_path / "bad.txt"
    path.write_bytes("Kunde^Ware^Tag\nZoë^1^01/02/2024\nbob^2^03/04/2024\nbob^^\n".encode("cp1252"))
    words = ["data", "info", path, "--json"]
    assert "--delimiter" in cli(*words).err
    words += ["--delimiter", "^", "--encoding", "cp1252"]
    assert "--user-column" in cli(*words).error
    words += ["--user-column", "Kunde", "--item-column", "Ware"]
    assert "--on-bad-row skip" in cli(*words).error
    words += ["--on-bad-row", "skip", "--bad-rows", bad, "--time-column", "Tag"]
    assert "--time-format" in cli(*words).error
    outcome = cli(*words, "--time-format", "%d/%m/%Y")
    assert (outcome.code, outcome.json["interactions"], outcome.json["times"]) == (0, 2, True)
    assert outcome.err.startswith("warning: log.csv: skipped 1 of 3 rows (1 without an item id)")
    assert "line 4" in bad.read_text(encoding="utf-8")


def test_standard_input_and_patterns(cli, tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("user,item\n3,4\n", encoding="utf-8")
    assert cli("data", "info", tmp_path / "*.csv", "--json").json["interactions"] == 2
    script = "import sys; from rankformer.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "data", "info", "-", "--format", "csv", "--json"]
    done = subprocess.run(command, input="user;item\n1;2\n", capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["name"] == "stdin"


def test_download_of_what_cannot_be_downloaded(cli):
    assert "nothing to download" in cli("data", "download", "demo").error
    assert "cannot be downloaded" in cli("data", "download", "yelp2018-lightgcn").error
    assert "'nope' is not a known dataset" in cli("data", "download", "nope").error


def test_download_shows_where_it_went(cli, monkeypatch, tmp_path):
    def pretend(name, folder, *, progress):
        progress("train.txt", 10, 20)
        progress("train.txt", 20, 20)
        return folder or tmp_path / "cache" / name

    monkeypatch.setattr("rankformer.data.download.download_dataset", pretend)
    outcome = cli("data", "download", "epinions", "--to", tmp_path)
    assert outcome.code == 0
    assert f"epinions is in {tmp_path / 'epinions'}" in outcome.out
    assert f"RANKFORMER_DATA={tmp_path}" in outcome.out
    assert outcome.err == "fetching train.txt (20 bytes)\n"
    quiet = cli("data", "download", "epinions", "--json")
    assert quiet.json == {"name": "epinions", "folder": str(tmp_path / "cache" / "epinions")}
