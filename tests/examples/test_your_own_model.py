"""The plug-in of the examples, through every door that the built-in models go through."""

import json

import numpy as np
import pytest

from rankformer import Interactions
from rankformer.cli.main import run

from ..serving.clients import asking

MODEL = ["--model", "your_own_model:PureSVD"]


@pytest.fixture
def module(example):
    return example("your_own_model")


@pytest.fixture
def cli(module, capsys):
    def call(*arguments):
        assert run([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def trained(cli, tmp_path):
    cli("train", "demo", *MODEL, "--set", "rank=16", "--out", tmp_path / "pure-svd", "--json")
    return tmp_path / "pure-svd"


def test_the_script_beats_popularity_by_far(module, capsys):
    assert module.main()["ndcg@20"] > 0.45  # popularity has 0.12, the best reachable is 0.57
    assert "book-128" in capsys.readouterr().out


def test_the_weights_project_on_the_leading_singular_vectors(module):
    """No other projection of the same rank keeps more of the histories (Eckart and Young)."""
    rng = np.random.default_rng(0)
    pairs = rng.choice(30 * 8, 100, replace=False)
    log = Interactions.from_indices(pairs // 8, pairs % 8, 30, 8)
    weights = module.PureSVD(rank=3).fit(log).recommender.scorer.matrix.weights.numpy().astype(np.float64)
    x = np.zeros((30, 8))
    x[log.users, log.items] = 1
    np.testing.assert_allclose(weights @ weights, weights, atol=1e-6)
    assert np.trace(weights) == pytest.approx(3)
    left_out = np.linalg.svd(x, compute_uv=False)[3:]
    assert np.square(x - x @ weights).sum() == pytest.approx(np.square(left_out).sum(), rel=1e-5)


def test_models_shows_its_settings(cli):
    shown = cli("models", MODEL[1], "--json")
    assert {"rank", "duplicates"} <= set(shown["settings"])
    assert all(setting["description"] for setting in shown["settings"].values())


def test_trained_evaluated_and_asked_by_command(cli, trained):
    assert cli("evaluate", trained, "--json")["metrics"]["ndcg@20"] > 0.45
    rows = cli("recommend", trained, "--user", "mira-001", "-k", 3, "--json")["recommendations"]
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert cli("recommend", trained, "--history", "book-020,book-037", "-k", 3, "--json")["recommendations"]
    assert cli("explain", trained, "--user", "mira-001", "--item", "book-128", "--json")["reasons"]
    assert cli("similar", trained, "--item", "book-001", "--json")["similar"]


def test_loaded_in_python(cli, trained, module):
    model = module.PureSVD.load(trained)
    assert model.settings.rank == 16
    rows = cli("recommend", trained, "--user", "mira-001", "--json")["recommendations"]
    assert model.recommend(["mira-001"]).to_dicts() == rows


def test_tuned(cli, tmp_path):
    pytest.importorskip("optuna")
    settings = ["--trials", 2, "--out", tmp_path / "search"]
    found = cli("tune", "demo", *MODEL, *settings, "--json")
    assert [set(trial["settings"]) for trial in found["trials"]] == [{"rank"}] * 2
    # The configuration that the search writes trains the same model.
    config = next((tmp_path / "search").glob("*.toml"))
    trained = cli("train", "demo", "--config", config, "--out", tmp_path / "run", "--json")
    assert trained["model"] == "pure-svd"


def test_served(trained, cli):
    rows = cli("recommend", trained, "--user", "mira-001", "-k", 5, "--json")["recommendations"]
    with asking(trained) as client:
        answer = client.get("/v1/recommend/mira-001?k=5").json()
    assert [item["item_id"] for item in answer["items"]] == [row["item_id"] for row in rows]
