"""The standing attack, in small: each campaign runs, finds nothing, and says so when it does find something."""

import ast
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from attack import damage, events, inputs, limits, numerics, report, soak, values
from attack.__main__ import CAMPAIGNS, TOKEN, Attack
from attack.service import bodies
from tests.serving.runs import write_run

from rankformer.models.registry import MODELS

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _nothing_is_kept(monkeypatch):
    """A test does not write into the repository: `make attack` keeps what it finds."""
    monkeypatch.setenv("ATTACK_KEEP", "0")


def test_a_failing_disk_loses_nothing(tmp_path):
    found = damage.failing_disk(tmp_path, faults=10, seed=0)
    assert found["faults"] == 10
    assert report.violations("faults", found) == []


def test_changed_bytes_are_refused(tmp_path):
    found = damage.changed_bytes(tmp_path, flips=20, truncations=5, seed=0)
    assert report.violations("bytes", found) == []


def test_journals_lose_and_invent_nothing(tmp_path):
    found = events.journal(tmp_path, kills=10, faults=8, changes=40, prunings=2, seed=0)
    assert report.violations("journal", found) == []
    assert (found["kills"], found["faults"], found["changes"]) == (10, 8, 40)
    assert found["acknowledged"] > 1000


def test_killed_updates_lose_nothing(tmp_path):
    # In a process of its own: one that has threads cannot be forked.
    program = (
        "import sys; from pathlib import Path; from attack import events;"
        "print(events.killed_updates(Path(sys.argv[1]), kills=3, seed=0))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found = ast.literal_eval(done.stdout)
    assert found["kills"] == 3
    assert report.violations("updates", found) == []


def test_parts_of_a_campaign_add_up():
    one = {"inputs": 5, "unexpected": ["a"], "slowest s": 0.5, "formats": 26, "seed": 1, "took s": 2.0, "by": {"x": 1}}
    two = {"inputs": 7, "unexpected": [], "slowest s": 0.2, "formats": 26, "seed": 2, "took s": 3.0, "by": {"x": 2}}
    assert report.together(one, two) == {
        "inputs": 12,
        "unexpected": ["a"],
        "slowest s": 0.5,
        "formats": 26,
        "seed": "1, 2",
        "took s": 5.0,
        "by": {"x": 3},
    }


def test_settings_at_random_are_taken_or_refused():
    found = values.settings(count=300, fits=6, seed=0)
    assert found["unexpected"] == []
    assert found["taken"] > 10
    assert found["refused"] > 10
    assert found["fits"] >= 1


def test_changed_inputs_of_every_source_are_read_or_refused(tmp_path):
    found = inputs.inputs(tmp_path, count=150, seed=0)
    assert found["unexpected"] == []
    assert found["read"] > 5
    assert found["refused"] > 50
    assert found["found by coverage"] > 3


def test_extreme_numbers_are_finite_or_stopped_with_their_cause():
    found = numerics.numerics(scale=0.01)
    assert report.violations("numerics", found) == []
    assert found["fits"] >= 10


@pytest.mark.parametrize("stage", ["reading", "loading"])
def test_a_memory_limit_is_said_in_one_line(tmp_path, stage):
    if stage == "reading":
        words = ["data", "info", str(limits.write_log(tmp_path / "log.csv", users=500, rows=200_000))]
    else:
        words = ["recommend", str(write_run(tmp_path / "run")), "--all", "--out", str(tmp_path / "lists.csv")]
    # In a process of its own: memory that this one has freed would not count against the limit.
    program = (
        "from attack import limits; limits.PATIENCE = 20;"
        f"[print(limits.command({words!r}, megabytes)[::2]) for megabytes in (6, 8, 12, 16)]"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment)
    found = list(map(ast.literal_eval, done.stdout.splitlines()))
    assert len(found) == 4, done
    for code, said in found[:2]:  # up to 8 MB are never enough
        assert (code, said.count("\n")) == (1, 1), said
    for code, said in found:
        assert code == 0 or (code == 1 and said.splitlines()[-1].startswith("error: not enough memory")), said


def test_a_short_soak_breaks_nothing(tmp_path):
    attack = Attack(scale=1.0, seed=0, folder=tmp_path)
    with attack._serving("soak") as (service, folder):
        found = soak.soak(service, folder, 10.0, TOKEN, attack.seed, tmp_path / "soak.png")
    assert {name: found[name] for name in report.ZERO["soak"] if found[name]} == {}
    assert found["answers"] > 10
    assert found["swaps"] >= 3
    assert found["faults"] >= 3
    assert (tmp_path / "soak.png").stat().st_size > 0


@pytest.mark.parametrize("name", ["bodies", "requests", "swaps"])
def test_the_service_stands_a_small_campaign(tmp_path, name):
    found = getattr(Attack(scale=0.02, seed=0, folder=tmp_path), name)()
    assert {key: found[key] for key in report.ZERO[name] if found[key]} == {}  # how fast it was is not asked here


def test_what_must_not_be_is_a_violation():
    assert report.violations("swaps", {"failed swaps": 0, "failed answers": 3}) == ["failed answers: 3"]
    assert report.violations("folders", {"others": {}, "slowest s": 2.5}) == ["slowest s: 2.5, expected below 2"]
    assert report.violations("writers", {"mixed": 0, "unexpected": [1]}) == ["unexpected: [1]"]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_campaign_says_what_it_does_and_what_must_be_zero(name):
    assert getattr(Attack, name).__doc__
    assert report.ZERO[name]


def test_dear_bodies_are_of_many_kinds_and_the_same_for_one_seed():
    found = dict(bodies(random.Random(1), 50))
    assert found == dict(bodies(random.Random(1), 50))
    assert len(found) > 30
    assert max(map(len, found.values())) > 900_000


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("lightgcn", "weights of 3e38"),
        ("rankformer", "one weight of 1e30"),
        ("blend", "weights from 1e-30 to 1e30"),
        ("ials", "weights of 3e38"),
    ],
)
def test_weights_that_no_decomposition_bears_stop_a_fit_in_one_line(name, log):
    settings = {"blend": {}, "ials": {"embedding_dim": 8}}.get(name, {"embedding_dim": 8, "epochs": 3})
    got, message = numerics._fitted(MODELS[name], settings, numerics.logs()[log])
    assert got in ("stopped", "finite"), message
    assert got == "finite" or "weights of the interactions" in message
