"""From one log to lists for customers: refit, known interactions, cold users, test files, warnings, comparison."""

import json
import random
from contextlib import nullcontext

import pytest

from rankformer import Interactions, Popularity
from rankformer.cli.main import run
from rankformer.data.source import DataSource
from rankformer.runs.saved import load_run

from .conftest import CLICK_COLUMNS, TINY

SMALL = {"ease": [], "ials": ["--set", "embedding_dim=8"], "rankformer": TINY, "popularity": []}


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def pairs_of(rows):
    return {(row["user_id"], row["item_id"]) for row in rows}


class TestTheSavedModel:
    @pytest.mark.parametrize("flags", [[], ["--no-refit"]], ids=["refit", "no refit"])
    def test_no_list_of_the_demo_holds_a_known_interaction(self, cli, tmp_path, flags):
        assert cli("train", "demo", "--out", tmp_path / "run", "--model", "ease", *flags).code == 0
        rows = cli("recommend", tmp_path / "run", "--all", "--json").json["recommendations"]
        log = DataSource(source="demo").load().whole.to_arrow()
        known = set(zip(log["user"].to_pylist(), log["item"].to_pylist(), strict=True))
        assert len(rows) == 9000
        assert not pairs_of(rows) & known
        evaluated = cli("recommend", tmp_path / "run", "--all", "--mask", "train", "--json").json["recommendations"]
        assert bool(pairs_of(evaluated) & known) is bool(flags)

    def test_one_log_is_refitted_and_given_parts_are_not(self, cli, clicks, tmp_path):
        split = ["data", "split", clicks, "--out", tmp_path / "parts", *CLICK_COLUMNS]
        assert cli(*split).code == 0
        arguments = ["train", tmp_path / "parts", "--model", "ease", "--json"]
        assert cli(*arguments, "--out", tmp_path / "a").json["refit"] is None
        document = cli(*arguments, "--out", tmp_path / "b", "--refit").json
        assert document["refit"]["interactions"] == len(load_run(tmp_path / "b").recommender.history)
        assert "refit" not in manifest_of(tmp_path / "a")
        arguments = ["train", clicks, "--model", "ease", *CLICK_COLUMNS]
        shown = cli(*arguments, "--out", tmp_path / "c").out
        assert (
            f"refitted on all {document['refit']['interactions']} interactions; the metrics are from before that"
            in shown
        )
        assert "refitted on all" not in cli(*arguments, "--out", tmp_path / "d", "--no-refit").out
        assert manifest_of(tmp_path / "c")["metrics"] == manifest_of(tmp_path / "d")["metrics"]

    def test_a_finished_run_that_was_not_refitted_is_not_taken_for_one_that_was(self, cli, clicks, finished):
        arguments = ["train", clicks, "--out", finished, "--seed", 3, *CLICK_COLUMNS, *TINY, "--resume"]
        assert cli(*arguments, "--no-refit").code == 0
        assert "its refit is false" in cli(*arguments, "--refit").error

    def test_an_interrupt_during_the_refit(self, cli, clicks, refitted, tmp_path, monkeypatch):
        def stop(event):
            if "refit" in event and event["epoch"] > 1:
                raise KeyboardInterrupt

        folder = tmp_path / "run"
        arguments = ["train", clicks, "--out", folder, "--seed", 3, *CLICK_COLUMNS, *TINY, "--json"]
        with monkeypatch.context() as patch:
            patch.setattr("rankformer.cli.train.progress_of", lambda *_, **__: nullcontext(stop))
            outcome = cli(*arguments)
        assert outcome.code == 130
        assert "the refit in" in outcome.err
        assert "--resume" in outcome.err
        resumed = cli(*arguments, "--resume")
        assert resumed.code == 0
        assert not [line for line in resumed.progress if line.startswith("epoch")]
        assert resumed.json["metrics"] == manifest_of(refitted)["metrics"]
        wanted, found = (manifest_of(run)["files"]["embeddings.safetensors"] for run in (refitted, folder))
        assert wanted == found

    def test_evaluate_measures_the_lists_from_before_the_refit(self, cli, finished, refitted, tmp_path):
        before, after = cli("evaluate", finished, "--json"), cli("evaluate", refitted, "--json")
        assert after.json["metrics"] == before.json["metrics"]
        assert after.json["protocol"]["split_hash"] == before.json["protocol"]["split_hash"]
        other = ["--metrics", "mrr@5,coverage@10", "--json"]
        assert cli("evaluate", refitted, *other).json["metrics"] == cli("evaluate", finished, *other).json["metrics"]
        assert "before that" in cli("evaluate", refitted).err
        values = tmp_path / "values.csv"
        assert cli("evaluate", refitted, "--per-user", values).code == 0
        assert len(values.read_text().splitlines()) == 1 + before.json["protocol"]["users"]
        assert "too short for a cutoff of 50" in cli("evaluate", refitted, "--metrics", "ndcg@50").error
        assert "keeps the lists of mask=train" in cli("evaluate", refitted, "--mask", "none").error


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """A log with times and ratings: some users rate well only what they see last, so that a split leaves them cold."""
    draw, lines = random.Random(4), ["user,item,rating,timestamp"]
    for user in range(40):
        for turn in range(10):
            item, late = (draw.randrange(6) if draw.random() < 0.5 else draw.randrange(30)), user % 5 == 0
            moment = 1_700_000_000 + 86_400 * turn + user
            lines.append(f"u{user},i{item},{2 if late and turn < 9 else 5},{moment}")
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


BY_TIME = ["--min-weight", "4", "--split", "time", "--no-refit"]


@pytest.fixture(scope="module")
def cold_runs(ratings, tmp_path_factory):
    folders = {}
    for model, settings in SMALL.items():
        folders[model] = tmp_path_factory.mktemp("cold") / model
        arguments = ["train", ratings, "--out", folders[model], "--model", model, *BY_TIME, *settings]
        assert run([str(argument) for argument in arguments]) == 0
    return folders


class TestColdUsers:
    @pytest.mark.parametrize("model", ["ease", "ials", "rankformer"])
    def test_they_get_what_is_popular_and_the_answer_says_so(self, cli, cold_runs, model):
        document = cli("recommend", cold_runs[model], "--user", "u5", "-k", 4, "--json").json
        assert document["fallbacks"] == ["u5"]
        rows = document["recommendations"]
        assert {row["fallback"] for row in rows} == {"popularity"}
        popular = cli("recommend", cold_runs["popularity"], "--user", "u5", "-k", 4, "--json").json["recommendations"]
        assert [row["item_id"] for row in rows] == [row["item_id"] for row in popular]
        assert "u5: no interaction the model was fitted on" in cli("recommend", cold_runs[model], "--user", "u5").err
        warm = cli("recommend", cold_runs[model], "--user", "u1", "--json").json
        assert list(warm) == ["recommendations"]
        assert "fallback" not in warm["recommendations"][0]

    def test_unknown_users_are_an_error_unless_a_fallback_is_asked_for(self, cli, cold_runs):
        assert "unknown user" in cli("recommend", cold_runs["ease"], "--user", "nobody").error
        document = cli("recommend", cold_runs["ease"], "--user", "nobody", "--fallback", "popularity", "--json").json
        assert document["fallbacks"] == ["nobody"]
        assert len(document["recommendations"]) == 10
        empty = cli("recommend", cold_runs["ease"], "--user", "u5", "--fallback", "none", "--json").json
        assert empty == {"recommendations": []}

    @pytest.mark.parametrize("model", ["ease", "item-knn"])
    def test_the_split_as_a_folder_and_as_a_test_file_give_the_same_figures(self, cli, ratings, tmp_path, model):
        assert cli("data", "split", ratings, "--out", tmp_path / "parts", *BY_TIME[:4]).code == 0
        train, test = ((tmp_path / "parts" / f"{part}.csv") for part in ("train", "test"))
        untuned = ["--model", model, "--set", "tune=false"]
        whole = cli("train", tmp_path / "parts", "--out", tmp_path / "a", *untuned, "--json").json
        alone = ["train", train, "--out", tmp_path / "b", *untuned, "--parts", "1,0,0"]
        assert cli(*alone).code == 0
        later = cli("evaluate", tmp_path / "b", "--data", test, "--json").json
        cold = whole["protocol"]["users_cold"]
        assert 0 < cold == later["protocol"]["users_cold"] < whole["protocol"]["users"] == later["protocol"]["users"]
        assert later["metrics"] == pytest.approx(whole["metrics"], rel=1e-6)
        assert later["warm_metrics"] == pytest.approx(whole["warm_metrics"], rel=1e-6)
        assert later["metrics"] != later["warm_metrics"]

    def test_both_figures_are_shown(self, cli, cold_runs):
        outcome = cli("evaluate", cold_runs["ease"])
        assert "warm users" in outcome.out
        assert "cold)" in outcome.out


class TestTestFiles:
    def test_a_file_is_the_test_part_unless_a_split_is_asked_for(self, cli, refitted, tmp_path):
        path = tmp_path / "mytest.csv"
        path.write_text("visitor,product,name\n" + "".join(f"u{user},{user},x\n" for user in range(10)))
        document = cli("evaluate", refitted, "--data", path, *CLICK_COLUMNS, "--mask", "none", "--json").json
        assert (document["protocol"]["users"], document["protocol"]["test_interactions"]) == (10, 10)
        split = ["--parts", "0.5,0,0.5", "--mask", "none", "--json"]
        document = cli("evaluate", refitted, "--data", path, *CLICK_COLUMNS, *split).json
        assert document["protocol"]["test_interactions"] == 5

    def test_what_the_model_was_fitted_on_is_pointed_out(self, cli, refitted, clicks):
        with open(clicks, encoding="utf-8") as stream:
            header, first, *_ = stream.read().splitlines()
        path = clicks.with_name("later.csv")
        path.write_text(f"{header}\n{first}\nu1,99,New\n", encoding="utf-8")
        outcome = cli("evaluate", refitted, "--data", path, *CLICK_COLUMNS)
        assert "1 of 2 test interactions are left out of lists by mask=train" in outcome.err
        outcome = cli("evaluate", refitted, "--data", clicks, *CLICK_COLUMNS)
        assert outcome.code == 2
        assert "refitted on the whole log" in outcome.error

    def test_the_test_part_begins_at_a_date(self, cli, ratings, tmp_path):
        arguments = ["train", ratings, "--model", "popularity", "--split", "time", "--json"]
        days = cli(*arguments, "--out", tmp_path / "a", "--test-days", 2).json["data"]
        date = cli(*arguments, "--out", tmp_path / "b", "--test-from", "2023-11-22T22:13:20").json["data"]
        assert days["test_interactions"] == date["test_interactions"] == 80
        assert (days["train_interactions"], days["valid_interactions"]) == (280, 40)
        assert days["source"]["test_days"] == 2
        assert cli("evaluate", tmp_path / "a").code == 0

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--test-days", "3"], "only the split by time"),
            (["--split", "time", "--test-days", "3", "--test-from", "2023-11-20"], "contradict"),
            (["--split", "time", "--test-from", "soon"], "expected a date such as"),
            (["--split", "time", "--test-from", "2030-01-01"], "no interaction is from 2030-01-01"),
            (["--split", "time", "--test-days", "0"], "test_days"),
        ],
    )
    def test_a_wrong_moment_is_one_line(self, cli, ratings, tmp_path, flags, message):
        outcome = cli("train", ratings, "--out", tmp_path / "run", *flags)
        assert outcome.code == 2
        assert message in outcome.error


class TestWarnings:
    def test_duplicates_across_the_split_rare_items_cold_and_few_users(self, cli, tmp_path):
        path = tmp_path / "log.csv"
        rows = [(0, 0, 1), (0, 1, 2), (0, 0, 3), (1, 0, 1), (1, 2, 2), (1, 9, 3), (2, 1, 1), (2, 0, 2), (2, 2, 3)]
        path.write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
        outcome = cli("train", path, "--out", tmp_path / "run", "--split", "last", "--model", "popularity", "--json")
        expected = [
            "1 of 3 test interactions are also in the training part",
            "2 of 3 test interactions are on items",
            "3 users, too few",
        ]
        for part, line, stored in zip(expected, outcome.err.splitlines(), outcome.json["warnings"], strict=True):
            assert line == f"warning: {stored}"
            assert part in stored
        path.write_text("user,item,time\n0,0,1\n0,1,2\n1,0,1\n2,1,9\n")
        outcome = cli("train", path, "--out", tmp_path / "b", "--split", "time", "--model", "popularity", "--json")
        assert "1 of 1 test users have no training interaction: popularity answers for them" in outcome.json["warnings"]

    def test_merged_duplicates_leave_none_across_the_split(self, cli, tmp_path):
        path = tmp_path / "log.csv"
        path.write_text("user,item,time\n" + "".join(f"{u},{i},{u + i}\n" for u in range(4) for i in (1, 2, 3, 1)))
        ask = ["train", path, "--split", "random-per-user", "--model", "popularity", "--json"]
        kept = cli(*ask, "--out", tmp_path / "a").json["warnings"]
        merged = cli(*ask, "--out", tmp_path / "b", "--duplicates", "merge").json["warnings"]
        assert any("also in the training part" in warning for warning in kept)
        assert not any("also in the training part" in warning for warning in merged)


@pytest.fixture(scope="module")
def compared(clicks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    for name, flags in {"ease": [], "popularity": [], "plain": ["--no-refit"]}.items():
        model = "ease" if name == "plain" else name
        arguments = ["train", clicks, "--out", folder / name, "--model", model, *CLICK_COLUMNS, *flags]
        assert run([str(argument) for argument in arguments]) == 0
    return folder


class TestCompare:
    def test_one_table_and_a_test_per_run(self, cli, compared):
        document = cli("compare", compared / "ease", compared / "popularity", "--json").json
        assert list(document["runs"]) == ["ease", "popularity"]
        for name, metrics in document["runs"].items():
            assert metrics["ndcg@20"] == manifest_of(compared / name)["metrics"]["ndcg@20"]
            assert {"coverage@20", "novelty@20", "gini@20", "diversity@20"} <= metrics.keys()
        difference = document["runs"]["popularity"]["ndcg@20"] - document["runs"]["ease"]["ndcg@20"]
        assert document["tests"]["popularity"]["difference"] == pytest.approx(difference)
        assert sum(group["size"] for group in document["by_activity"]) == document["protocol"]["users"]
        assert document["facts"]["ease"]["bytes"] > 0
        shown = cli("compare", compared / "ease", compared / "popularity").out
        for word in ("ndcg@20", "95% interval", "by training interactions of the user", "protocol: "):
            assert word in shown

    def test_a_refitted_run_is_compared_as_it_was_evaluated(self, cli, compared):
        document = cli("compare", compared / "ease", compared / "plain", "--json").json
        assert document["tests"]["plain"]["difference"] == 0.0
        assert document["tests"]["plain"]["p"] == 1.0

    def test_what_cannot_be_compared_is_refused_in_one_line(self, cli, compared, clicks, tmp_path):
        other = ["train", clicks, "--out", tmp_path / "other", "--model", "ease", "--split-seed", 5, *CLICK_COLUMNS]
        assert cli(*other).code == 0
        assert "another split" in cli("compare", compared / "ease", tmp_path / "other").error
        assert "two or more different runs" in cli("compare", compared / "ease", compared / "ease").error
        assert (
            "too short for a cutoff of 30"
            in cli("compare", compared / "ease", compared / "plain", "--metrics", "ndcg@30").error
        )
        Popularity().fit(Interactions.from_indices([0, 1], [0, 1])).save(tmp_path / "python")
        assert "does not say which interactions" in cli("compare", compared / "ease", tmp_path / "python").error
