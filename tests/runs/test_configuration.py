"""Configuration files and --set: what they may say, and what wins."""

import re
import tomllib
from pathlib import Path

import pytest

import rankformer
from rankformer.errors import ConfigError
from rankformer.models.rankformer import RankformerSettings
from rankformer.runs.configuration import (
    chosen_model,
    chosen_settings,
    parse_assignment,
    parse_value,
    read_configuration,
    write_configuration,
)

PACKAGED = Path(rankformer.__file__).parent / "research" / "configs" / "paper"
CONFIGS = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "experiments" / "paper-configs"


@pytest.mark.parametrize(
    ("dataset", "layers", "tau"),
    [("ali-display", 4, 0.5), ("epinions", 4, 0.4), ("amazon-cds", 2, 0.5), ("yelp2018", 3, 0.4)],
)
def test_the_published_settings(dataset, layers, tau):
    path = CONFIGS / dataset / "rankformer.toml"
    config = read_configuration(path)
    assert chosen_model(config, None) == "rankformer"
    settings = RankformerSettings(**chosen_settings(RankformerSettings, config, [])).hyperparameters()
    expected = {"num_layers": layers, "tau": tau, "alpha": 2.0, "embedding_dim": 64, "learning_rate": 0.1, "l2": 1e-4}
    expected |= {"epochs": 2000, "validate_every": 20, "patience": 10, "metric": "ndcg@20", "batch_size": None}
    assert {key: settings[key] for key in expected} == expected
    command = rf"rankformer (train {dataset} --out|reproduce \S+ --dataset {dataset} )"
    assert re.search(command, path.read_text(encoding="utf-8"))


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
def test_values_are_read_as_toml_or_stay_strings(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_none_is_a_word_where_it_is_a_choice_and_nothing_where_that_is_allowed():
    settings = chosen_settings(
        RankformerSettings, {"settings": {"batch_size": 5}}, ["negatives=none", "batch_size=none"]
    )
    assert settings["negatives"] == "none"
    assert settings["batch_size"] is None


def test_flags_win_over_the_file_and_the_file_over_defaults():
    settings = chosen_settings(RankformerSettings, {"settings": {"tau": 0.1, "num_layers": 2}}, ["num_layers=5"])
    assert settings == {"tau": 0.1, "num_layers": 5}  # what is not given may be tuned


@pytest.mark.parametrize("text", ["epochs", "=3", "epochs=", ""])
def test_an_assignment_needs_key_and_value(text):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_assignment(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle = 'rankformer'", "unknown key 'modle'"),
        ("model = 3", "model is 3; expected a string"),
        ("seed = true", "seed is True; expected an integer"),
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
        read_configuration(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_configuration(tmp_path / "none.toml")


def test_model_flag_and_file_must_agree():
    assert chosen_model({}, None) == "blend"
    assert chosen_model({"model": "popularity"}, "popularity") == "popularity"
    with pytest.raises(ConfigError, match="contradicts"):
        chosen_model({"model": "popularity"}, "rankformer")


def test_every_config_file_is_toml_with_known_keys():
    paths = sorted(CONFIGS.glob("*/*.toml"))
    assert len(paths) >= 4
    for path in paths:
        assert tomllib.loads(path.read_text(encoding="utf-8"))["model"]


@pytest.mark.parametrize("seed", [None, 7])
def test_what_is_written_is_read_back(tmp_path, seed):
    settings = {"tau": 0.25, "batch_size": None, "metric": 'a "quoted" ☃', "similarity": True, "sizes": [1, 2]}
    write_configuration(tmp_path / "a.toml", "rankformer", settings, seed=seed, comment="Two lines\nof comment.")
    found = read_configuration(tmp_path / "a.toml")
    assert found.pop("model") == "rankformer"
    assert found.pop("settings") == {**settings, "batch_size": "none"}
    assert found == ({} if seed is None else {"seed": seed})
    assert (tmp_path / "a.toml").read_text(encoding="utf-8").startswith("# Two lines\n# of comment.\nmodel")


@pytest.mark.parametrize("name", ["seed", "device"])
def test_seed_and_device_are_not_hyperparameters(name):
    with pytest.raises(ConfigError, match=f"not a hyperparameter, use --{name}"):
        chosen_settings(RankformerSettings, {}, [f"{name}=1"])


def test_no_file_is_an_empty_configuration():
    assert read_configuration(None) == {}
