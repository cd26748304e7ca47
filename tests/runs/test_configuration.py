import tomllib
from pathlib import Path

import pytest

from rankformer.runs.configuration import chosen_model, chosen_settings, parse_assignment, parse_value, read_config
from rankformer.errors import ConfigError
from rankformer.models.rankformer import Rankformer

CONFIGS = Path(__file__).parents[2] / "experiments" / "paper-configs"


@pytest.mark.parametrize(
    ("dataset", "layers", "tau"),
    [("ali-display", 4, 0.5), ("epinions", 4, 0.4), ("amazon-cds", 2, 0.5), ("yelp2018", 3, 0.4)],
)
def test_the_published_settings(dataset, layers, tau):
    path = CONFIGS / dataset / "rankformer.toml"
    config = read_config(path)
    assert chosen_model(config, None) == "rankformer"
    settings = chosen_settings(Rankformer, config, [])
    expected = {"num_layers": layers, "tau": tau, "alpha": 2.0, "embedding_dim": 64, "learning_rate": 0.1, "l2": 1e-4}
    expected |= {"epochs": 2000, "validate_every": 20, "patience": 10, "metric": "ndcg@20", "batch_size": None}
    assert {key: settings[key] for key in expected} == expected
    assert f"rankformer train {dataset} --out" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ('"quoted"', "quoted"),
        ("ndcg@10", "ndcg@10"),
        ("push", "push"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_are_read_as_toml_or_stay_text(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_none_is_a_word_where_it_is_a_choice_and_nothing_where_that_is_allowed():
    settings = chosen_settings(Rankformer, {"settings": {"batch_size": 5}}, ["negatives=none", "batch_size=none"])
    assert settings["negatives"] == "none"
    assert settings["batch_size"] is None


def test_flags_win_over_the_file_and_the_file_over_defaults():
    settings = chosen_settings(Rankformer, {"settings": {"tau": 0.1, "num_layers": 2}}, ["num_layers=5"])
    assert (settings["tau"], settings["num_layers"], settings["alpha"]) == (0.1, 5, 2.0)


@pytest.mark.parametrize("text", ["epochs", "=3", "epochs=", ""])
def test_an_assignment_needs_key_and_value(text):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_assignment(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle = 'rankformer'", "unknown key 'modle'"),
        ("model = 3", "model is 3; expected a text"),
        ("seed = true", "seed is True; expected a whole number"),
        ("settings = 3", "expected a table"),
        ("[data]\nsource = 'x'", r"\[data\] has a source"),
        ("[data]\nkcore = 3", r"\[data\] unknown setting 'kcore'; did you mean 'k_core'"),
        ("model = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "a.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


def test_model_flag_and_file_must_agree():
    assert chosen_model({}, None) == "rankformer"
    assert chosen_model({"model": "popularity"}, "popularity") == "popularity"
    with pytest.raises(ConfigError, match="contradicts"):
        chosen_model({"model": "popularity"}, "rankformer")


def test_every_config_file_is_toml_with_known_keys():
    paths = sorted(CONFIGS.glob("*/*.toml"))
    assert len(paths) >= 4
    for path in paths:
        assert tomllib.loads(path.read_text(encoding="utf-8"))["model"]
