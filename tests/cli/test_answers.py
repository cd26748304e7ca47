"""evaluate, recommend, similar and explain on a finished run."""

import csv
import json
import shutil

import pyarrow.parquet as pq
import pytest

from rankformer.runs.saved import load_run

from .conftest import CLICK_COLUMNS, TINY, write_clicks

PARTS = ["user_contribution", "global_contribution"]  # of a score, besides its reasons


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class TestEvaluate:
    def test_the_shape_of_the_json(self, cli, finished):
        document = cli("evaluate", finished, "--json").json
        assert set(document) == {"metrics", "protocol"}
        assert list(document["metrics"]) == ["ndcg@20", "recall@20", "recall_capped@20"]
        assert document["protocol"]["seed"] == 3
        manifest = json.loads((finished / "manifest.json").read_text(encoding="utf-8"))
        assert document["metrics"] == manifest["metrics"]
        assert document["protocol"] == manifest["protocol"]

    def test_what_people_see(self, cli, finished):
        outcome = cli("evaluate", finished, "--metrics", "recall@5,gini@5", "--mask", "train+valid")
        assert "recall@5" in outcome.out
        assert "mask=train+valid" in outcome.out
        assert outcome.err == ""

    @pytest.mark.parametrize("name", ["values.csv", "values.parquet"])
    def test_values_per_user(self, cli, finished, tmp_path, name):
        path = tmp_path / name
        mean = cli("evaluate", finished, "--per-user", path, "--json").json["metrics"]["ndcg@20"]
        if name.endswith("csv"):
            with open(path, encoding="utf-8", newline="") as stream:
                values = [float(row["ndcg@20"]) for row in csv.DictReader(stream)]
        else:
            values = pq.read_table(path)["ndcg@20"].to_pylist()
        assert sum(values) / len(values) == pytest.approx(mean)

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            (["--metrics", "ndgc@20"], "unknown metric 'ndgc@20'"),
            (["--metrics", "ndcg"], "needs a cutoff"),
            (["--mask", "all"], "mask='all'"),
            (["--per-user", "x.xlsx"], "cannot write '.xlsx'"),
            (["--k-core", "2"], "need --data"),
            (["--data", "nothing"], "'nothing' is not a known dataset"),
        ],
    )
    def test_wrong_requests(self, cli, finished, extra, message):
        outcome = cli("evaluate", finished, *extra)
        assert outcome.code == 2
        assert message in outcome.error

    def test_data_that_changed_since(self, cli, tmp_path):
        path, run = write_clicks(tmp_path / "clicks.csv"), tmp_path / "run"
        assert cli("train", path, "--out", run, "--no-refit", *CLICK_COLUMNS, *TINY).code == 0
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("u1,99,New\n")
        outcome = cli("evaluate", run)
        assert outcome.code == 2
        assert "has changed since" in outcome.error
        allowed = cli("evaluate", run, "--data", path, "--split", "random", "--mask", "none", *CLICK_COLUMNS, "--json")
        assert allowed.code == 0
        assert allowed.err.startswith("warning: ")
        assert allowed.err.count("\n") == 1
        assert "ndcg@20" in allowed.json["metrics"]
        path.unlink()
        gone = cli("evaluate", run)
        assert gone.code == 2
        assert "no longer at" in gone.error
        assert "--data" in gone.error

    def test_the_same_data_named_again_is_no_warning(self, cli, finished, clicks):
        outcome = cli("evaluate", finished, "--data", clicks, "--split", "random", *CLICK_COLUMNS, "--json")
        assert outcome.err == ""
        assert outcome.json == cli("evaluate", finished, "--json").json

    def test_a_run_saved_from_python_does_not_know_its_data(self, cli, tmp_path):
        from rankformer import Interactions, Popularity

        Popularity().fit(Interactions.from_indices([0, 1], [0, 1])).save(tmp_path / "run")
        assert "name it with --data" in cli("evaluate", tmp_path / "run").error


class TestRecommend:
    def test_the_shape_of_the_json(self, cli, finished):
        document = cli("recommend", finished, "--user", "u1", "--user", "u2", "-k", 2, "--json").json
        assert list(document) == ["recommendations"]
        rows = document["recommendations"]
        assert [(row["user_id"], row["rank"]) for row in rows] == [("u1", 1), ("u1", 2), ("u2", 1), ("u2", 2)]
        assert list(rows[0]) == ["user_id", "item_id", "score", "rank", "title"]
        assert isinstance(rows[0]["item_id"], int)
        assert rows[0]["title"] == f"Product {rows[0]['item_id']}"

    def test_what_people_see(self, cli, finished):
        outcome = cli("recommend", finished, "--user", "u1", "-k", 2)
        assert "for u1" in outcome.out
        assert "Product" in outcome.out
        assert outcome.err == ""

    def test_a_new_user(self, cli, finished):
        ask = ["recommend", finished, "--user", "u2", "--mask", "train", "-k", 3, "--json"]
        rows = cli(*ask).json["recommendations"]
        history = load_run(finished).recommender.history
        row = history.user_ids.index_of(["u2"])[0]
        items = history.item_ids.take(history.items[history.users == row]).to_pylist()
        outcome = cli("recommend", finished, "--history", ", ".join(map(str, items)), "-k", 3, "--json")
        assert list(outcome.json) == ["recommendations"]
        found = outcome.json["recommendations"]
        assert [entry["item_id"] for entry in found] == [entry["item_id"] for entry in rows]
        assert {entry["user_id"] for entry in found} == {"history"}
        assert outcome.err == ""

    def test_histories_with_gaps_say_so(self, cli, finished):
        ask = ["recommend", finished, "--history", "2,none,77", "--history", "none", "-k", 2]
        document = cli(*ask, "--json").json
        assert document["unknown_items"] == [
            {"user_id": "history 1", "item_ids": ["none", 77]},
            {"user_id": "history 2", "item_ids": ["none"]},
        ]
        assert document["fallbacks"] == ["history 2"]
        outcome = cli(*ask)
        assert "for history 2" in outcome.out
        assert outcome.err.splitlines() == [
            "note: history 1: 2 unknown items were ignored: 'none', 77",
            "note: history 2: 1 unknown items were ignored: 'none'",
            "note: history 2: no known item, so these are the most popular ones",
        ]

    def test_a_file_of_users(self, cli, finished, tmp_path):
        ids = tmp_path / "ids.txt"
        ids.write_bytes("\ufeffu3\r\n\r\nu1\n".encode())
        rows = cli("recommend", finished, "--users", ids, "-k", 1, "--json").json["recommendations"]
        assert [row["user_id"] for row in rows] == ["u3", "u1"]

    @pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"])
    def test_a_file_without_users(self, cli, finished, tmp_path, content):
        (tmp_path / "ids.txt").write_bytes(content)
        outcome = cli("recommend", finished, "--users", tmp_path / "ids.txt")
        assert outcome.code == 2
        assert "one user id per line" in outcome.error

    def test_more_positions_than_items_gives_all_there_are(self, cli, finished):
        rows = cli("recommend", finished, "--user", "u1", "-k", 10_000, "--include-seen", "--json").json
        assert len(rows["recommendations"]) == 10
        unseen = cli("recommend", finished, "--user", "u1", "-k", 10_000, "--json").json["recommendations"]
        assert 0 < len(unseen) < 10

    @pytest.mark.parametrize("name", ["lists.csv", "lists.parquet", "lists.jsonl"])
    def test_lists_in_a_file(self, cli, finished, tmp_path, name):
        path = tmp_path / "deep" / name
        outcome = cli("recommend", finished, "--all", "-k", 3, "--out", path)
        assert outcome.code == 0
        rows = int(outcome.out.split()[1])
        assert outcome.out == f"wrote {rows} rows to {path}\n"
        assert [entry.name for entry in path.parent.iterdir()] == [name]
        if name.endswith("parquet"):
            assert pq.read_table(path).num_rows == rows
        else:
            assert len(path.read_text(encoding="utf-8").splitlines()) == rows + name.endswith("csv")
        assert cli("recommend", finished, "--all", "-k", 3, "--out", path, "--json").json["rows"] == rows

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            ([], "exactly one way"),
            (["--user", "u1", "--all"], "exactly one way"),
            (["--user", "u1", "--user", "u2", "--history", "2"], "give each of them once"),
            (["--users", "no-such-file", "--history", "2"], "exactly one way"),
            (["--user", "nobody"], "unknown user: 'nobody'"),
            (["--user", "u1", "-k", "0"], "k=0"),
            (["--users", "no-such-file"], "no-such-file cannot be read"),
            (["--all", "--out", "lists.xlsx"], "cannot write '.xlsx'"),
        ],
    )
    def test_wrong_requests(self, cli, finished, extra, message):
        outcome = cli("recommend", finished, *extra)
        assert outcome.code == 2
        assert message in outcome.error

    @pytest.mark.parametrize(
        "name", ["manifest.json", "embeddings.safetensors", "users.parquet", "items.parquet", "history.parquet"]
    )
    @pytest.mark.parametrize("how", ["a bit", "gone"])
    def test_a_damaged_run(self, cli, finished, tmp_path, name, how):
        run = shutil.copytree(finished, tmp_path / "run")
        damage(run / name) if how == "a bit" else (run / name).unlink()
        for command in (["recommend", run, "--all"], ["evaluate", run], ["similar", run, "--item", "1"]):
            outcome = cli(*command)
            assert outcome.code == 2
            assert name in outcome.error


class TestSimilar:
    def test_the_shape_of_the_json(self, cli, finished):
        document = cli("similar", finished, "--item", 4, "-k", 3, "--json").json
        assert list(document) == ["similar"]
        rows = document["similar"]
        assert list(rows[0]) == ["item_id", "similar_item_id", "score", "rank", "title"]
        assert [row["rank"] for row in rows] == [1, 2, 3]
        assert all(row["item_id"] == 4 != row["similar_item_id"] for row in rows)

    def test_what_people_see(self, cli, finished):
        assert "similar to 4" in cli("similar", finished, "--item", 4).out

    @pytest.mark.parametrize(
        ("extra", "message"), [(["--item", "none"], "unknown item: 'none'"), (["--item", "4", "-k", "0"], "k=0")]
    )
    def test_wrong_requests(self, cli, finished, extra, message):
        outcome = cli("similar", finished, *extra)
        assert outcome.code == 2
        assert message in outcome.error


class TestExplain:
    def test_the_shape_of_the_json(self, cli, finished):
        document = cli("explain", finished, "--user", "u2", "--item", 3, "--json").json
        assert list(document) == ["user_id", "item_id", "title", "score", "reasons", *PARTS]
        assert (document["user_id"], document["item_id"], document["title"]) == ("u2", 3, "Product 3")
        total = sum(reason["contribution"] for reason in document["reasons"]) + sum(document[part] for part in PARTS)
        assert total == pytest.approx(document["score"], abs=1e-5)
        assert document["reasons"][0]["title"] == f"Product {document['reasons'][0]['item_id']}"

    def test_what_people_see(self, cli, finished):
        outcome = cli("explain", finished, "--user", "u2", "--item", 3, "-k", 1)
        assert "3 (Product 3) for u2" in outcome.out
        assert "more of the history" in outcome.out
        assert "all items outside the history" in outcome.out
        assert "score" in outcome.out

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            (["--user", "nobody", "--item", "3"], "unknown user: 'nobody'"),
            (["--user", "u2", "--item", "none"], "unknown item: 'none'"),
            (["--user", "u2", "--item", "3", "-k", "0"], "k=0"),
        ],
    )
    def test_wrong_requests(self, cli, finished, extra, message):
        outcome = cli("explain", finished, *extra)
        assert outcome.code == 2
        assert message in outcome.error

    def test_a_method_that_cannot_explain_says_so(self, cli, clicks, tmp_path):
        run = tmp_path / "run"
        assert cli("train", clicks, "--out", run, "--model", "popularity", *CLICK_COLUMNS).code == 0
        outcome = cli("explain", run, "--user", "u2", "--item", "3")
        assert outcome.code == 2
        assert "cannot be explained" in outcome.error
