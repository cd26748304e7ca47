import shlex

import pytest

from rankformer.cli import demo


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "run"


def test_demo_beats_popularity_and_not_the_oracle(cli, kept):
    outcome = cli("demo", "--out", kept, "--json")
    assert outcome.code == 0
    metrics = outcome.json["metrics"]
    for name in ("ndcg@20", "recall@20", "recall_capped@20"):
        for model in ("blend", "rankformer"):
            assert 3 * metrics["popularity"][name] < metrics[model][name] < metrics["oracle"][name] + 0.01
    assert metrics["rankformer"]["ndcg@20"] > 0.85 * metrics["oracle"]["ndcg@20"]
    assert metrics["blend"]["ndcg@20"] > metrics["rankformer"]["ndcg@20"]
    assert outcome.json["protocol"]["users"] == 887
    assert [len(example["recommendations"]) for example in outcome.json["examples"]] == [5, 5, 5]
    assert cli("evaluate", kept, "--json").json["metrics"] == metrics["blend"]


def test_what_people_see(cli, monkeypatch, tmp_path):
    monkeypatch.setitem(demo.SETTINGS, "epochs", 5)
    outcome = cli("demo", "--out", tmp_path / "my run", "--seed", 1)
    assert outcome.code == 0
    for word in (
        "blend (default)",
        "Rankformer",
        "popularity",
        "best reachable",
        "mira-001 read",
        "  1. ",
        "protocol: ",
        "seed=1",
    ):
        assert word in outcome.out
    commands = [line.split("rankformer ", 1)[1] for line in outcome.out.splitlines()[-2:]]
    for command in commands:
        assert cli(*shlex.split(command)).code == 0
    assert "finished run" in cli("demo", "--out", tmp_path / "my run").error


def test_without_a_folder_it_says_how_to_keep_the_model(cli, monkeypatch):
    monkeypatch.setitem(demo.SETTINGS, "epochs", 2)
    assert "try next:  rankformer demo --out runs/demo" in cli("demo").out
