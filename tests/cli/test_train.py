import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest

from .conftest import CLICK_COLUMNS, TINY, write_clicks


def test_a_run_says_what_it_is(cli, clicks, tmp_path):
    outcome = cli(
        "train", clicks, "--out", tmp_path / "run", "--seed", 3, "--threads", 1, *CLICK_COLUMNS, *TINY, "--json"
    )
    assert outcome.code == 0
    document = outcome.json
    assert set(document["metrics"]) == {"ndcg@20", "recall@20", "recall_capped@20"}
    assert document["protocol"]["mask"] == "train"
    assert (document["model"], document["seed"], document["epochs"]) == ("rankformer", 3, 6)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    data = manifest["data"]
    assert data["source"]["source"] == str(clicks)
    assert data["source"]["user"] == "visitor"
    assert (data["name"], data["users"], data["items"]) == ("clicks", 12, 10)
    assert len(data["fingerprint"]) == 64
    assert not (tmp_path / "run" / "checkpoint").exists()
    fit, refit = ([line for line in outcome.progress if line.startswith(word)] for word in ("epoch", "refit epoch"))
    assert [line.split()[1] for line in fit] == ["2/6", "4/6", "6/6"]  # one per validation
    best = document["best_epoch"]
    assert [line.split()[2] for line in refit] == [f"{epoch}/{best}" for epoch in range(2, best + 1, 2)]
    assert len(outcome.progress) == len(fit) + len(refit)
    whole = sum(data[f"{part}_interactions"] for part in ("train", "valid", "test"))
    assert (document["refit"]["interactions"], document["refit"]["epochs"]) == (whole, best)
    assert document["refit"] == manifest["refit"]


def test_what_people_see(cli, clicks, tmp_path):
    outcome = cli("train", clicks, "--out", tmp_path / "run", *CLICK_COLUMNS, *TINY)
    assert "rankformer on clicks: 12 users x 10 items" in outcome.out
    assert "protocol: split=clicks/test" in outcome.out
    command = outcome.out.split("lists:  rankformer ")[1].split()
    assert cli(*command).code == 0


def test_epochs_are_a_short_way_to_set_them(cli, clicks, tmp_path):
    out = tmp_path / "run"
    words = ["train", clicks, "--out", out, *CLICK_COLUMNS, *TINY, "--json"]
    assert cli(*words, "--epochs", 2).json["epochs"] == 2
    outcome = cli(*words[:4], *CLICK_COLUMNS, "--model", "ease", "--epochs", 2, "--overwrite")
    assert (outcome.code, "'epochs'" in outcome.error) == (2, True)


def test_a_database_is_trained_on_and_its_password_is_nowhere(cli, clicks, postgres, tmp_path):
    import psycopg

    rows = [line.split(",") for line in clicks.read_text(encoding="utf-8").splitlines()[1:]]
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("create table clicks (user_id text, item_id int, title text)")
        try:
            connection.cursor().executemany("insert into clicks values (%s, %s, %s)", rows)
            out = tmp_path / "run"
            outcome = cli("train", postgres.url, "--table", "clicks", "--out", out, "--no-refit", *TINY)
            assert outcome.code == 0, outcome.err
            again = cli("evaluate", out, "--json")  # the server of the tests asks for no password
            assert again.code == 0, again.err
        finally:
            connection.execute("drop table clicks")
    gone = cli("evaluate", out)
    assert gone.code == 2
    written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    shown = "".join((outcome.out, outcome.err, again.out, gone.err))
    assert postgres.password not in shown
    assert not any(postgres.password.encode() in data for data in written)
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["data"]["name"] == "clicks"


def test_popularity_has_nothing_to_train(cli, clicks, tmp_path):
    outcome = cli("train", clicks, "--out", tmp_path / "run", "--model", "popularity", *CLICK_COLUMNS)
    assert (outcome.code, outcome.progress) == (0, [])


def test_without_valid_and_test_parts(cli, clicks, tmp_path):
    outcome = cli("train", clicks, "--out", tmp_path / "run", "--parts", "1,0,0", *CLICK_COLUMNS, *TINY)
    assert outcome.code == 0
    assert "nothing was measured" in outcome.out
    assert len(outcome.err.splitlines()) == 3
    assert cli("evaluate", tmp_path / "run").code == 2


def test_a_configuration_file(cli, clicks, tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(
        'model = "rankformer"\nseed = 5\n[settings]\nepochs = 2\nembedding_dim = 4\n'
        '[data]\nuser = "visitor"\nitem = "product"\nsplit_seed = 9\n',
        encoding="utf-8",
    )
    arguments = ["train", clicks, "--config", config, "--set", "embedding_dim=6", "--split-seed", 1, "--json"]
    document = cli(*arguments, "--out", tmp_path / "run").json
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert document["seed"] == 5
    assert (manifest["settings"]["epochs"], manifest["settings"]["embedding_dim"]) == (2, 6)
    assert document["data"]["source"]["split_seed"] == 1
    assert "contradicts" in cli(*arguments, "--model", "popularity", "--out", tmp_path / "b").error
    assert cli(*arguments, "--seed", 8, "--out", tmp_path / "c").json["seed"] == 8


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--model", "rankfomer"], "unknown model 'rankfomer'; did you mean 'rankformer'?"),
        (["--set", "num_layer=3"], "unknown setting 'num_layer'; did you mean 'num_layers'?"),
        (["--set", "seed=3"], "unknown setting 'seed'"),
        (["--set", "epochs=many"], "epochs='many'"),
        (["--set", "epochs=0"], "epochs=0"),
        (["--set", "tau=nan"], "tau=nan"),
        (["--set", "epochs=none"], "epochs='none'"),
        (["--set", "epochs"], "expected key=value"),
        (["--set", "metric=ndgc@20"], "unknown metric"),
        (["--device", "tpu"], "device='tpu'"),
        (["--parts", "0.5,0.5"], "three fractions"),
        (["--parts", "a,b,c"], "--parts a,b,c"),
        (["--parts", "0.5,0.1,0.1"], "sum to 1"),
        (["--split", "sideways"], "split='sideways'"),
        (["--split", "last"], "needs a time"),
        (["--k-core", "50"], "no 50-core"),
        (["--user-column", "nobody"], "nobody"),
        (["--resume", "--overwrite"], "contradict"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_request_is_one_line_and_writes_nothing(cli, clicks, tmp_path, extra, message):
    arguments = [*CLICK_COLUMNS, *TINY, *extra]
    outcome = cli("train", clicks, "--out", tmp_path / "run", *arguments)
    assert outcome.code == 2
    assert message in outcome.error
    assert not (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "bad.csv"),
        ("user,item\n", "bad.csv"),
        ("user,item\na,1\nb\n", "line 3"),
        ("who,item\na,1\nb,2\n", "user"),
    ],
    ids=["empty", "only a header", "a short line", "no user column"],
)
def test_bad_data_is_one_line(cli, tmp_path, content, message):
    (tmp_path / "bad.csv").write_text(content, encoding="utf-8")
    outcome = cli("train", tmp_path / "bad.csv", "--out", tmp_path / "run", *TINY)
    assert outcome.code == 2
    assert message in outcome.error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threads", "100000"], "threads"),
        (["--set", "num_layers=1000000000"], "num_layers=1000000000: input should be at most 64"),
        (["--set", "embedding_dim=99999999999"], "embedding_dim"),
        (["--set", "epochs=" + "9" * 5000], "epochs='999"),
        (["--set", "tau=" + "[" * 5000], "tau"),
        (["--set", "metric=ndcg@99999999999999999999"], "cutoff"),
        (["--set", f"metric=ndcg@{'9' * 5000}"], "cutoff"),
        (["--seed", "9" * 30], "seed"),
        (["--user-column", "a", "--item-column", "a"], "both the user and the item"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_values_beyond_all_bounds_are_refused_in_one_short_line(cli, clicks, tmp_path, flags, message):
    outcome = cli("train", clicks, "--out", tmp_path / "run", "--model", "rankformer", *CLICK_COLUMNS, *flags)
    assert outcome.code == 2
    assert message in outcome.error
    assert len(outcome.error) < 700
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text", ["seed = -1", "[settings]\nepochs = " + "9" * 5000, "a = " + "[" * 5000, "seed = 1e999"]
)
def test_a_file_of_such_values_is_refused_too(cli, clicks, tmp_path, text):
    (tmp_path / "c.toml").write_text(text, encoding="utf-8")
    outcome = cli("train", clicks, "--out", tmp_path / "run", *CLICK_COLUMNS, "--config", tmp_path / "c.toml")
    assert outcome.code == 2
    assert "unexpected" not in outcome.error


def test_data_that_is_not_there(cli, tmp_path):
    assert "did you mean 'epinions'" in cli("train", "epinion", "--out", tmp_path / "run").error
    assert "rankformer data download epinions" in cli("train", "epinions", "--out", tmp_path / "run").error


def test_a_loss_that_explodes_is_our_error(cli, clicks, tmp_path):
    outcome = cli("train", clicks, "--out", tmp_path / "run", *CLICK_COLUMNS, *TINY, "--set", "learning_rate=1e38")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("error: step")


class TestTheFolderIsInUse:
    @pytest.fixture
    def run(self, finished, tmp_path):
        return shutil.copytree(finished, tmp_path / "run")

    def arguments(self, clicks, run):
        return ["train", clicks, "--out", run, "--seed", 3, *CLICK_COLUMNS, *TINY]

    def test_a_finished_run_is_kept(self, cli, clicks, run):
        before = (run / "manifest.json").read_bytes()
        outcome = cli(*self.arguments(clicks, run))
        assert outcome.code == 2
        assert "--overwrite" in outcome.error
        assert (run / "manifest.json").read_bytes() == before

    def test_resume_of_a_finished_run_shows_it(self, cli, clicks, run):
        before = (run / "manifest.json").read_bytes()
        outcome = cli(*self.arguments(clicks, run), "--resume")
        assert outcome.code == 0
        assert "already finished" in outcome.err
        assert "ndcg@20" in outcome.out
        document = cli(*self.arguments(clicks, run), "--resume", "--json").json
        assert document["status"] == "already finished"
        assert document["metrics"] == json.loads(before)["metrics"]
        assert (run / "manifest.json").read_bytes() == before

    def test_overwrite_replaces_the_run_and_nothing_else(self, cli, clicks, run):
        (run / "notes.md").write_text("mine", encoding="utf-8")
        outcome = cli(*self.arguments(clicks, run), "--overwrite", "--seed", 4, "--json")
        assert (outcome.code, outcome.json["seed"]) == (0, 4)
        assert (run / "notes.md").read_text(encoding="utf-8") == "mine"

    def test_a_wrong_request_does_not_cost_the_old_run(self, cli, clicks, run):
        assert cli(*self.arguments(clicks, run), "--overwrite", "--set", "tau=7").code == 2
        assert cli("train", "nothing.csv", "--out", run, "--overwrite").code == 2
        assert cli("recommend", run, "--user", "u1").code == 0

    def test_a_training_that_fails_does_not_cost_the_old_run(self, cli, clicks, run):
        before = cli("recommend", run, "--all", "--json").json
        assert cli(*self.arguments(clicks, run), "--overwrite", "--set", "learning_rate=1e30").code == 1
        assert cli("recommend", run, "--all", "--json").json == before
        assert "--overwrite" in cli(*self.arguments(clicks, run)).error
        assert cli(*self.arguments(clicks, run), "--overwrite", "--seed", 4, "--json").json["seed"] == 4
        assert cli("recommend", run, "--all", "--json").json != before
        assert not (run / ".training").exists()

    @pytest.mark.parametrize("flags", [[], ["--resume"], ["--overwrite"]])
    def test_a_folder_of_other_things_is_never_touched(self, cli, clicks, tmp_path, flags):
        folder = tmp_path / "photos"
        folder.mkdir()
        (folder / "cat.jpg").write_bytes(b"cat")
        outcome = cli(*self.arguments(clicks, folder), *flags)
        assert outcome.code == 2
        assert "cat.jpg" in outcome.error
        assert [entry.name for entry in folder.iterdir()] == ["cat.jpg"]

    def test_a_file_instead_of_the_folder(self, cli, clicks, tmp_path):
        (tmp_path / "f").write_text("x", encoding="utf-8")
        assert "is a file" in cli(*self.arguments(clicks, tmp_path / "f")).error

    def test_resume_without_a_checkpoint_starts(self, cli, clicks, tmp_path):
        assert cli(*self.arguments(clicks, tmp_path / "new"), "--resume").code == 0


class TestInterrupted:
    @pytest.fixture
    def interrupt_after(self, monkeypatch):
        def at(epoch):
            def stop(event):
                if event["epoch"] >= epoch:
                    raise KeyboardInterrupt

            monkeypatch.setattr("rankformer.cli.train.progress_of", lambda *_, **__: nullcontext(stop))
            return monkeypatch

        return at

    def arguments(self, clicks, folder):
        return ["train", clicks, "--out", folder, "--seed", 3, *CLICK_COLUMNS, *TINY, "--json"]

    def test_continuing_gives_the_same_run(self, cli, clicks, finished, tmp_path, interrupt_after):
        patch = interrupt_after(5)
        folder = tmp_path / "run"
        outcome = cli(*self.arguments(clicks, folder))
        assert (outcome.code, outcome.out) == (130, "")
        assert len(outcome.progress) == 1
        assert "epoch 4" in outcome.err
        assert "--resume" in outcome.err
        patch.undo()
        refused = cli(*self.arguments(clicks, folder))
        assert refused.code == 2
        assert "--resume" in refused.error
        assert "--overwrite" in refused.error
        assert "--resume" in cli("recommend", folder, "--all").error
        other = cli(*self.arguments(clicks, folder), "--resume", "--set", "tau=0.9")
        assert other.code == 2
        assert "another run" in other.error
        resumed = cli(*self.arguments(clicks, folder), "--resume")
        assert resumed.code == 0
        whole = json.loads((finished / "manifest.json").read_text(encoding="utf-8"))
        assert resumed.json["metrics"] == whole["metrics"]
        assert not (folder / "checkpoint").exists()

    def test_overwrite_starts_again(self, cli, clicks, tmp_path, interrupt_after):
        patch = interrupt_after(5)
        assert cli(*self.arguments(clicks, tmp_path / "run")).code == 130
        patch.undo()
        assert cli(*self.arguments(clicks, tmp_path / "run"), "--overwrite").code == 0

    def test_before_the_first_checkpoint(self, cli, clicks, tmp_path, interrupt_after):
        patch = interrupt_after(1)
        outcome = cli(*self.arguments(clicks, tmp_path / "run"))
        assert outcome.code == 130
        assert "no checkpoint" in outcome.err
        patch.undo()
        assert cli(*self.arguments(clicks, tmp_path / "run"), "--resume").code == 0


def test_a_real_interrupt(clicks, tmp_path):
    """As a user does it: in a process of its own, stopped by Ctrl-C."""
    script = "import sys; from rankformer.cli.main import run; sys.exit(run())"
    settings = ["--set", "epochs=1000000", "--set", "patience=1000000", "--set", "validate_every=10"]
    arguments = ["train", str(clicks), "--out", "run", "--model", "rankformer", *CLICK_COLUMNS, *settings]
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        told = (line for line in process.stderr if " ... " not in line)  # which a slow step is told by
        assert next(told).startswith("warning: the test part has ")
        assert next(told).startswith("epoch 10/1000000")
        assert next(told).startswith("epoch 20/1000000")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("stopped: the checkpoint in run is at epoch ")
    assert "Traceback" not in err


def test_odd_ids_from_train_to_lists(cli, tmp_path):
    odd = ["naïve ünïcode 漢字", "a,b", 'say "hi"', "x" * 3000, "[bold]not markup[/bold]", "-5", "tab\there"]
    lines = [json.dumps({"user": user, "item": f"{item}!"}) for user in odd for item in odd]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert cli("train", tmp_path / "log.jsonl", "--out", tmp_path / "run", *TINY).code == 0
    for user in odd:
        rows = cli("recommend", tmp_path / "run", "--user", user, "--include-seen", "-k", 3, "--json").json
        assert {row["user_id"] for row in rows["recommendations"]} == {user}
        assert len(rows["recommendations"]) == 3
    shown = cli("recommend", tmp_path / "run", "--all", "--include-seen").out
    assert "for [bold]not markup[/bold]" in shown
    assert "tab\\there" in shown
    assert cli("recommend", tmp_path / "run", "--all", "--include-seen", "--out", tmp_path / "lists.csv").code == 0
    assert cli("similar", tmp_path / "run", "--item", "a,b!").code == 0


def test_titles_and_header_of_a_csv(cli, tmp_path):
    path = write_clicks(tmp_path / "clicks.csv", header="user_id,item_id,title")
    assert cli("train", path, "--out", tmp_path / "run", *TINY).code == 0
    row = cli("recommend", tmp_path / "run", "--user", "u1", "-k", 1, "--json").json["recommendations"][0]
    assert row["title"] == f"Product {row['item_id']}"
