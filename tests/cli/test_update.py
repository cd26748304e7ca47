"""`rankformer update`: new interactions, users and items join a run that stays as it was."""

import json

import pytest

from rankformer.data.journal import Event, JournalWriter
from rankformer.files import sha256_of
from rankformer.runs.manifest import read_manifest
from rankformer.runs.saved import load_run


@pytest.fixture
def run(cli, tmp_path):
    rows = [f"u{user},{100 + (user * 3 + step * (1 + user % 2)) % 12}" for user in range(30) for step in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    settings = ["--model", "lightgcn", "--epochs", "10", "--set", "embedding_dim=8"]
    assert cli("train", tmp_path / "log.csv", "--out", tmp_path / "run", *settings).code == 0
    (tmp_path / "new.csv").write_text("user,item\nu1,111\nfresh,100\nfresh,103\nu2,999\n")
    return tmp_path / "run"


def test_an_update_joins_what_is_new_and_leaves_the_run(cli, run, tmp_path):
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    outcome = cli("update", run, "--with", tmp_path / "new.csv", "--out", tmp_path / "two", "--json")
    assert outcome.code == 0, outcome.err
    said = outcome.json["update"]
    assert (said["interactions"], said["users"], said["items"]) == (4, 1, 1)
    assert said["parent"] == sha256_of(run / "manifest.json")
    assert said["measured"]["metrics"] == read_manifest(run)["metrics"]
    assert set(said["before"]["metrics"]) == {"ndcg@20", "recall@20", "recall_capped@20"}
    assert before == {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    old, new = load_run(run), load_run(tmp_path / "two")
    assert new.metrics == {}
    assert new.recommender.user_ids.ids.slice(0, len(old.recommender.user_ids)).equals(old.recommender.user_ids.ids)
    assert len(new.recommender.history) == len(old.recommender.history) + 4
    assert cli("recommend", tmp_path / "two", "--user", "fresh").code == 0
    assert "--data" in cli("evaluate", tmp_path / "two").error
    third = cli("update", tmp_path / "two", "--with", tmp_path / "new.csv", "--out", tmp_path / "three", "--json")
    assert third.code == 0, third.err
    assert third.json["update"]["measured"] == said["measured"]


def test_the_journal_is_learned_once(cli, run, tmp_path):
    journal = tmp_path / "journal"
    writer = JournalWriter(journal)
    writer.append([Event("u1", 111, 1), Event("visitor", 105, 2)])
    first = cli("update", run, "--journal", journal, "--out", tmp_path / "two", "--json").json["update"]
    assert (first["interactions"], first["users"]) == (2, 1)
    writer.append([Event("visitor", 106, 3)])
    # A run that was killed before it was saved is made again from the same parent: the same events, once.
    again = cli("update", run, "--journal", journal, "--out", tmp_path / "two", "--overwrite", "--json").json["update"]
    assert again["interactions"] == 3
    nothing = cli("update", tmp_path / "two", "--journal", journal, "--out", tmp_path / "three", "--json")
    assert nothing.json["update"]["interactions"] == 0
    assert nothing.json["update"]["journal"] == again["journal"]
    lists = [cli("recommend", tmp_path / name, "--user", "visitor", "--json").json for name in ("two", "three")]
    assert lists[0] == lists[1]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "say what is new"),
        (["--with", "new.csv", "--k-core", "2"], "k_core is for train"),
        (["--with", "new.csv", "--prune-journal"], "needs --journal"),
        (["--journal", "nowhere"], "is not a folder"),
    ],
)
def test_mistakes_are_one_line(cli, run, tmp_path, monkeypatch, flags, reason):
    monkeypatch.chdir(tmp_path)
    assert reason in cli("update", run, "--out", "two", *flags).error


def test_the_run_itself_and_ids_of_another_kind_are_refused(cli, run, tmp_path):
    assert "never touches" in cli("update", run, "--with", tmp_path / "new.csv", "--out", run).error
    (tmp_path / "odd.csv").write_text("user,item\nu1,abc\n")
    assert "item ids are int64" in cli("update", run, "--with", tmp_path / "odd.csv", "--out", tmp_path / "x").error


def test_new_items_of_a_known_user(cli, run):
    both = cli("recommend", run, "--user", "u1", "--history", "111,105", "--json").json["recommendations"]
    plain = cli("recommend", run, "--user", "u1", "--json").json["recommendations"]
    assert {row["user_id"] for row in both} == {"u1"}
    assert not {row["item_id"] for row in both} & {111, 105}
    assert len(both) == len({row["item_id"] for row in plain} - {111, 105})
    assert "give each of them once" in cli("recommend", run, "--user", "u1", "--user", "u2", "--history", "111").error
    item = both[0]["item_id"]
    found = cli("explain", run, "--user", "u1", "--history", "111", "--item", item, "--json").json
    assert 111 in {reason["item_id"] for reason in found["reasons"]}
    assert json.dumps(found)


def test_an_update_never_writes_into_its_run(cli, run, tmp_path):
    before = sorted(path.name for path in run.iterdir())
    (tmp_path / "link").symlink_to(run)
    for out in (run, run / "sub", tmp_path / "link", run / ".." / "run"):
        outcome = cli("update", run, "--with", tmp_path / "new.csv", "--out", out, "--overwrite")
        assert outcome.code == 2
        assert "which an update never touches" in outcome.error
    assert sorted(path.name for path in run.iterdir()) == before
