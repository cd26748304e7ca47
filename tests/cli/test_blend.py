"""The blend on the command line: the model of `train` by default, its report, and what other commands say of it."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rankformer.models.blend import Blend
from rankformer.models.blend_fit import BlendFit

from .conftest import CLICK_COLUMNS

DOCS = Path(__file__).parents[2] / "docs"

QUICK = ["--set", "members=ials,item-knn"]
WITH_MF = ["--set", "members=item-knn,mf", "--set", "tune=false", "--parts", "1,0,0"]  # as heavy as each other


@pytest.fixture(autouse=True)
def _small_steps(one_thread):
    """The log here is too small to share out."""


@pytest.fixture
def train(cli, clicks, tmp_path):
    def call(*arguments):
        return cli("train", clicks, "--out", tmp_path / "run", *CLICK_COLUMNS, *arguments)

    return call


def rows_of(out, member):
    return [line for line in out.splitlines() if line.split()[:1] == [member]]


def test_train_without_a_model_trains_the_blend_and_shows_every_member(train, cli, tmp_path):
    outcome = train()
    assert outcome.code == 0
    assert outcome.out.startswith("blend on clicks: 12 users x 10 items")
    assert "members, on the validation part (the blend: 0." in outcome.out
    for heading in ("weight", "alone", "blend without it", "seconds"):
        assert heading in outcome.out
    for member in ("ials", "item-knn", "ease", "lightgcn", "rankformer"):
        assert rows_of(outcome.out, member)
        assert any(line.startswith(f"{member}: ndcg@20 0.") for line in outcome.progress)  # it with its defaults
    assert outcome.progress[-1].startswith("choosing weights on the validation part")
    assert cli("recommend", tmp_path / "run", "--user", "u1", "--json").code == 0


def test_members_can_be_named(train):
    document = train(*QUICK, "--json").json
    assert document["model"] == "blend"
    report = document["blend"]
    assert {member["label"].removesuffix(" (defaults)") for member in report["members"]} == {"ials", "item-knn"}
    assert sum(member["weight"] for member in report["members"]) == pytest.approx(1)
    assert report["members"][0].keys() == {"label", "settings", "weight", "alone", "without", "seconds"}
    assert report["refused"] == {}
    assert document["refit"]["members"]


def test_a_budget_that_is_too_small_for_a_member_names_it(train):
    outcome = train("--set", "members=ials,mf", "--budget", "0.001s")
    assert outcome.code == 0
    assert any(line.startswith("mf is left out: mf would take about ") for line in outcome.progress)
    assert "left out: mf (mf would take about " in outcome.out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--set", "members=ials,itemknn"], "did you mean 'item-knn'"),
        (["--set", "members=ials,ials"], "each once"),
        (["--budget", "soon"], "'soon' is not a duration"),
        (["--budget", "2m", "--model", "mf"], "unknown setting 'budget'"),
        (["--set", "epochs=3"], "unknown setting 'epochs'"),
    ],
)
def test_mistakes_are_one_line(train, extra, message):
    outcome = train(*extra)
    assert outcome.code == 2
    assert message in outcome.error


def test_fold_in_says_which_member_it_does_without(train, cli, tmp_path):
    assert train(*WITH_MF).code == 0
    run = tmp_path / "run"
    note = "note: without mf: it cannot score new users"
    outcome = cli("recommend", run, "--history", "2,4")
    assert outcome.err.splitlines() == [note]
    document = cli("recommend", run, "--history", "2,4", "--json").json
    assert document["left_out"] == ["mf"]
    assert "left_out" not in cli("recommend", run, "--user", "u1", "--json").json
    explained = cli("explain", run, "--history", "2,4", "--item", "6")
    assert explained.err.splitlines() == [note]
    assert not rows_of(explained.out, "mf")


def test_explain_has_a_row_per_member_that_adds_up(train, cli, tmp_path):
    assert train(*WITH_MF).code == 0
    shown = cli("explain", tmp_path / "run", "--user", "u1", "--item", "4").out
    values = {
        line.split()[1]: float(line.split()[0])
        for line in shown.splitlines()
        if line.split()[1:] in (["item-knn"], ["mf"])
    }
    score = float(shown.split("score ")[1])
    assert sum(values.values()) == pytest.approx(score, abs=2e-4)
    assert len(values) == 2
    document = cli("explain", tmp_path / "run", "--user", "u1", "--item", "4", "--json").json
    assert sum(document["members"].values()) == pytest.approx(document["score"])
    assert document["score"] == pytest.approx(score, abs=1e-4)


def test_a_blend_that_was_stopped_says_at_which_fit(train, tmp_path, monkeypatch):
    monkeypatch.setattr(BlendFit, "weigh", lambda self, pool: (_ for _ in ()).throw(KeyboardInterrupt))
    outcome = train("--set", "members=item-knn", "--set", "tune=false")
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1].startswith(f"stopped: the checkpoint in {tmp_path / 'run'} is at fit 1;")
    monkeypatch.undo()
    assert train("--set", "members=item-knn", "--set", "tune=false", "--resume").code == 0


def test_the_commands_and_the_program_of_the_page_work(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("data", "convert", "demo", "--out", "whole.csv").code == 0
    lines = Path("whole.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("clicks.csv").write_text("".join(lines[:3000]), encoding="utf-8")
    page = (DOCS / "blend.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    rankformer (.+)$", page, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        quick = ["--set", "members=ease,item-knn"] if "train" in command and "members" not in command else []
        outcome = cli(*shlex.split(command), *quick)
        assert outcome.code == 0, outcome.err
    [described] = re.findall(r"\n((?:    .*\n|\n)*    model = \"blend\"\n(?:    .*\n|\n)*)", page)
    content = tomllib.loads(described.replace("\n    ", "\n"))
    assert Blend(**content["settings"]).member("ials").settings.embedding_dim == 128
    [program] = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "by ials" in ran.stdout
