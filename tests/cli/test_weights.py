"""Weights, events and age on the command line: they count, and the command says so."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import TINY

from rankformer.runs.manifest import read_manifest

PAGE = (Path(__file__).parents[2] / "docs" / "weights.md").read_text(encoding="utf-8")
EVENTS = ["--event-column", "kind", "--event-weights", "view=1,cart=3,purchase=10,other=0"]
QUICK = {
    "ials": ["--set", "embedding_dim=8"],
    "ease": ["--set", "regularization=5"],
    "rankformer": TINY,
}


def write_shop(path, stars=True):
    """Write 30 users x 20 items, three events; the weights favour what few have."""
    rng = np.random.default_rng(0)
    lines = ["user,item,kind,ts" + (",stars" if stars else "")]
    for user in range(30):
        for item in rng.choice(20, 9, replace=False):
            kind = ("view", "cart", "purchase", "share")[rng.integers(4)]
            day = f"2026-0{rng.integers(1, 7)}-1{rng.integers(10)}"
            lines.append(f"u{user},i{item},{kind},{day}" + (f",{1 + rng.integers(5)}" if stars else ""))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def shop(tmp_path):
    return write_shop(tmp_path / "shop.csv")


@pytest.fixture
def lists(cli, tmp_path):
    """Returns the lists of a run trained with some arguments, and what the training said."""

    def train(*arguments):
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        trained = cli("train", *arguments, "--out", out)
        assert trained.code == 0, trained.err
        return cli("recommend", out, "--all", "--json").json, trained, out

    return train


@pytest.mark.parametrize("model", QUICK)
def test_with_and_without_a_weight_column_the_lists_differ_and_the_command_says_why(lists, shop, model):
    options = [shop, "--model", model, *QUICK[model]]
    plain, trained, out = lists(*options)
    assert "weights" not in trained.err
    assert pq.read_table(out / "history.parquet").column_names == ["user", "item", "part"]
    heavy, trained, out = lists(*options, "--weight-column", "stars")
    assert heavy != plain
    assert f"note: weights from 1 to 5 count in {model}" in trained.err.splitlines()
    assert pq.read_table(out / "history.parquet").column_names == ["user", "item", "part", "weight"]


def test_weights_that_are_found_count_unless_none_are_to_be_read(lists, shop):
    shop.write_text(shop.read_text().replace("stars", "rating"))
    options = [shop, "--model", "ials", *QUICK["ials"], "--set", "tune=false"]
    found, trained, _ = lists(*options)
    assert "weights from 1 to 5 count in ials (--weight-column '' reads none)" in trained.err
    left_out, trained, _ = lists(*options, "--weight-column", "")
    assert found != left_out
    assert trained.progress == []
    assert "weights" not in trained.err


def test_a_method_that_cannot_use_weights_says_so_in_one_line_before_training(cli, shop, tmp_path):
    command = ["train", shop, "--out", tmp_path / "run", "--model", "gformer", *TINY[:6], "--weight-column", "stars"]
    trained = cli(*command)
    assert trained.code == 0, trained.err
    said = [line for line in trained.err.splitlines() if "weights" in line]
    assert said == ["warning: weights from 1 to 5 are ignored by gformer: it counts every interaction alike"]
    assert trained.err.splitlines()[0] == said[0]
    assert cli(*command, "--overwrite", "--json").json["model"] == "gformer"


def test_events_and_age_are_in_the_manifest_and_decide_what_is_resumed(cli, lists, shop):
    options = [shop, "--model", "ials", *QUICK["ials"], *EVENTS]
    _, trained, out = lists(*options)
    assert "weights from 1 to 10 count in ials" in trained.err
    source = read_manifest(out)["data"]["source"]
    assert source["event"] == "kind"
    assert source["event_weights"] == {"view": 1, "cart": 3, "purchase": 10, "other": 0}
    assert cli("train", *options, "--out", out, "--resume").code == 0
    assert cli("evaluate", out).code == 0
    other = cli("train", *options, "--out", out, "--resume", "--half-life", "30d")
    assert other.code == 2
    assert "data" in other.error
    _, _, out = lists(*options, "--half-life", "30d")
    assert read_manifest(out)["data"]["source"]["half_life"] == "30d"
    assert cli("evaluate", out).code == 0
    weights = pq.read_table(out / "history.parquet")["weight"].to_numpy()
    assert 0 < weights.min() < 0.5 < weights.max() <= 10


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--event-column", "kind"], "give event_weights (--event-weights) too"),
        (["--event-weights", "view=1"], "give event (--event-column) too"),
        (["--event-column", "kind", "--event-weights", "view=1"], "'cart', 'purchase', 'share' in column 'kind'"),
        (["--event-column", "kind", "--event-weights", "view"], "expected each event once, such as view=1,cart=3"),
        (["--event-column", "kind", "--event-weights", "view=1,view=2"], "expected each event once"),
        (["--event-column", "kind", "--event-weights", "view=-1"], "expected a number from 0"),
        (["--half-life", "30"], "expected a number above 0 with h, d or w for its unit, such as 30d"),
        (["--half-life", "30d", "--time-column", ""], "has no times, so half_life cannot be applied"),
    ],
)
def test_a_mistake_is_one_line(cli, shop, tmp_path, flags, said):
    failed = cli("train", shop, "--out", tmp_path / "run", "--model", "ials", *flags)
    assert failed.code == 2
    assert said in failed.error


def test_a_weight_that_cannot_count_is_one_line(cli, shop, tmp_path):
    shop.write_text(shop.read_text().replace(",1\n", ",0\n"))
    command = ["train", shop, "--out", tmp_path / "run", "--model", "ials", "--weight-column", "stars"]
    failed = cli(*command)
    assert failed.code == 2
    assert "interactions of weight 0 or less, the least 0; weights that count are above 0" in failed.err
    assert cli(*command, "--overwrite", "--min-weight", "1", *QUICK["ials"]).code == 0


def test_a_search_writes_how_its_data_counts(cli, shop, tmp_path):
    pytest.importorskip("optuna")
    flags = [*EVENTS, "--half-life", "30d"]
    found = cli("tune", shop, "--model", "ials", "--trials", "1", "--out", tmp_path / "search", *QUICK["ials"], *flags)
    assert found.code == 0, found.err
    command = ["train", shop, "--config", tmp_path / "search" / "best.toml", "--out", tmp_path / "run"]
    assert cli(*command).code == 0
    source = read_manifest(tmp_path / "run")["data"]["source"]
    assert source["event_weights"] == {"view": 1, "cart": 3, "purchase": 10, "other": 0}
    assert source["half_life"] == "30d"


def test_the_commands_and_the_program_of_the_page_work(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shop(tmp_path / "shop.csv")
    write_shop(tmp_path / "ratings.csv")
    commands = re.findall(r"^    rankformer (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        quick = [] if "--model" in command else ["--model", "rankformer", *TINY]
        outcome = cli(*shlex.split(command), *quick)
        assert outcome.code == 0, outcome.err
        assert "note: weights from" in outcome.err
    [program] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_split_that_is_written_keeps_what_interactions_count(cli, shop, tmp_path):
    done = cli("data", "split", shop, "--out", tmp_path / "split", *EVENTS, "--half-life", "30d", "--json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "split" / "split.json").read_text())["source"]["half_life"] == "30d"
    header = (tmp_path / "split" / "train.csv").read_text().splitlines()[0]
    assert "weight" in header
