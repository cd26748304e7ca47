"""RecBole: its files and configurations in, and results that equal those of RecBole itself."""

import logging

import numpy as np
import pytest
import yaml

from rankformer.adapters.recbole import load_parts, run_recbole
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.evaluator import evaluate

TESTED = {"RecBole": ("adapter", "recbole")}

RATIO = {"split": {"RS": [0.7, 0.1, 0.2]}, "group_by": "user", "order": "RO", "mode": "full"}
SPLITS = {
    "random by user": RATIO,
    "random": {**RATIO, "group_by": "none"},
    "by time": {**RATIO, "order": "TO", "group_by": "none"},
    "leave out": {**RATIO, "order": "TO", "split": {"LS": "valid_and_test"}},
}


@pytest.fixture(autouse=True)
def their_numpy(monkeypatch):
    """RecBole 1.2.1 names types that NumPy 2 no longer has."""
    for name, kind in {"float_": np.float64, "complex_": np.complex128, "unicode_": np.str_}.items():
        monkeypatch.setattr(np, name, kind, raising=False)


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    """A log of 150 users in RecBole's format, each interaction once.

    Of a duplicate whose copies fall into different parts RecBole lists the test item although it is in training; here
    lists leave out what was trained on.
    """
    folder = tmp_path_factory.mktemp("recbole") / "shop"
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for user in range(150):
        items = {int(item) for item in (rng.integers(0, 60, 14) * (1 + user % 3)) % 80}
        lines += [f"u{user}\ti{item}\t{rng.integers(1, 6)}\t{rng.integers(10**6)}" for item in items]
    rng.shuffle(lines[1:])
    (folder / "shop.inter").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder.parent)


def theirs(model, config):
    """What RecBole itself makes of a configuration: its parts in raw ids, and its results."""
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.utils import get_model, get_trainer, init_seed

    logging.disable()
    config = Config(model=model, dataset="shop", config_dict={**config, "use_gpu": False, "show_progress": False})
    init_seed(config["seed"], config["reproducibility"])
    dataset = create_dataset(config)
    loaders = data_preparation(config, dataset)
    parts = []
    for loader in loaders:
        users, items = (loader.dataset.inter_feat[field].numpy() for field in ("user_id", "item_id"))
        parts.append(sorted(zip(dataset.id2token("user_id", users), dataset.id2token("item_id", items), strict=True)))
    network = get_model(model)(config, loaders[0].dataset)
    trainer = get_trainer(config["MODEL_TYPE"], model)(config, network)
    best, valid = trainer.fit(loaders[0], loaders[1], saved=False, show_progress=False)
    test = trainer.evaluate(loaders[2], load_best_model=False, show_progress=False)
    logging.disable(logging.NOTSET)
    return parts, {"best_valid_score": best, "best_valid_result": dict(valid), "test_result": dict(test)}


def pairs_of(part):
    users, items = part.user_ids.take(part.users).to_pylist(), part.item_ids.take(part.items).to_pylist()
    return sorted(zip(users, items, strict=True))


METRICS = {"metrics": ["Recall", "MRR", "NDCG", "Hit", "Precision", "MAP"], "topk": [5, 10], "metric_decimal_place": 7}


@pytest.mark.parametrize("split", SPLITS)
def test_data_splits_and_results_are_those_of_recbole(data_path, split):
    """One method in closed form: the same parts, and every metric of every cutoff to seven digits."""
    config = {"data_path": data_path, "eval_args": SPLITS[split], "reg_weight": 30.0, **METRICS}
    config |= {"user_inter_num_interval": "[5,inf)", "item_inter_num_interval": "[4,inf)", "val_interval": None}
    config |= {"load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]}, "seed": 11}
    parts, expected = theirs("EASE", config)
    found = run_recbole("EASE", "shop", config_dict=config)
    ours = load_parts({**_defaults(), **config}, "shop")
    assert [pairs_of(part) for part in ours] == parts
    assert found["test_result"].keys() == expected["test_result"].keys()
    assert len(found["test_result"]) == 12
    for key in ("best_valid_result", "test_result"):
        assert found[key] == pytest.approx({name: float(value) for name, value in expected[key].items()}, abs=1e-6)
    assert found["best_valid_score"] == pytest.approx(float(expected["best_valid_score"]), abs=1e-6)


def _defaults():
    from rankformer.adapters.recbole import DEFAULTS

    return DEFAULTS


def test_values_are_filtered_as_recbole_does(data_path):
    config = {"data_path": data_path, "eval_args": {**RATIO, "order": "TO"}, "val_interval": {"rating": "[3,inf)"}}
    config |= {"load_col": {"inter": ["user_id", "item_id", "rating", "timestamp"]}}
    parts, _ = theirs("Pop", config)
    assert [pairs_of(part) for part in load_parts({**_defaults(), **config}, "shop")] == parts


def test_item_knn_comes_close(data_path):
    """It differs by ties alone."""
    config = {"data_path": data_path, "eval_args": RATIO, "k": 20, "shrink": 2.0, **METRICS}
    _, expected = theirs("ItemKNN", config)
    found = run_recbole("ItemKNN", "shop", config_dict=config)
    assert found["test_result"]["recall@10"] == pytest.approx(float(expected["test_result"]["recall@10"]), abs=0.01)


@pytest.mark.parametrize(("model", "name"), [("BPR", "mf"), ("LightGCN", "lightgcn")])
def test_trained_models_take_their_settings(data_path, tmp_path, model, name):
    config = {
        "epochs": 2,
        "embedding_size": 8,
        "learning_rate": 0.01,
        "data_path": data_path,
        "gpu_id": "0",
        "learner": "adam",
    }
    config |= {"valid_metric": "NDCG@10", **({"n_layers": 1, "reg_weight": "1e-4"} if model == "LightGCN" else {})}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"model": model, "dataset": "shop", **config}))
    found = run_recbole(config_file_list=[tmp_path / "config.yaml"])
    settings = found["model"].settings
    assert found["model"].name == name
    assert (settings.epochs, settings.embedding_dim, settings.batch_size, settings.seed) == (2, 8, 2048, 2020)
    assert settings.metric == "ndcg@10"
    assert settings.l2 == (1e-4 if model == "LightGCN" else 0)
    assert found["best_valid_score"] == found["best_valid_result"]["ndcg@10"] or "ndcg@10" in found["best_valid_result"]


def test_our_models_go_by_their_own_names(data_path):
    config = {"data_path": data_path, "members": ["ease", "item-knn"], "tune": False}
    found = run_recbole("blend", "shop", config_dict=config)
    parts = load_parts({**_defaults(), **config}, "shop")
    expected = evaluate(found["model"], parts.test, metrics=["ndcg@10"], valid=parts.valid, mask="train+valid")
    assert found["model"].name == "blend"
    assert found["test_result"]["ndcg@10"] == round(expected.metrics["ndcg@10"], 4) > 0


def test_files_that_are_split_already(data_path, tmp_path):
    parts = load_parts({**_defaults(), "data_path": data_path}, "shop")
    folder = tmp_path / "ready"
    folder.mkdir()
    for name, part in zip(("train", "valid", "test"), parts, strict=True):
        lines = ["user_id:token\titem_id:token", *("\t".join(pair) for pair in pairs_of(part))]
        (folder / f"ready.{name}.inter").write_text("\n".join(lines) + "\n")
    config = {"data_path": str(tmp_path), "benchmark_filename": ["train", "valid", "test"]}
    found = run_recbole("EASE", "ready", config_dict=config)
    expected = evaluate(found["model"], parts.test, metrics=["recall@10"], valid=parts.valid, mask="train+valid")
    assert found["test_result"]["recall@10"] == round(expected.metrics["recall@10"], 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval_args": {"mode": "uni100"}}, "sampled candidates are not supported"),
        ({"metrics": ["GAUC"]}, "metric 'GAUC' has no counterpart"),
        ({"rm_dup_inter": "first"}, "rm_dup_inter='first' has no counterpart"),
        ({"train_neg_sample_args": {"sample_num": 5}}, "has no counterpart"),
        ({"learner": "sgd"}, "learner='sgd' has no counterpart"),
        ({"dropout": 0.3}, "dropout=0.3 is not a setting of EASE here; known are reg_weight"),
        ({"user_inter_num_interval": "5"}, "'5' is not an interval"),
        ({"user_inter_num_interval": "[500,inf)"}, "leave no interaction"),
        ({"eval_args": {"split": {"RS": [0.8, 0.2]}}}, "expected RS with three ratios"),
        ({"eval_args": {"split": {"LS": "both"}}}, "expected valid_and_test"),
    ],
    ids=str,
)
def test_what_would_change_results_is_rejected(data_path, change, message):
    with pytest.raises((ConfigError, DataError), match=message.replace("[", r"\[")):
        run_recbole("EASE", "shop", config_dict={"data_path": data_path, **change})


def test_a_configuration_that_names_nothing_is_rejected(tmp_path):
    (tmp_path / "empty.yaml").write_text("epochs: 3\n")
    with pytest.raises(ConfigError, match="names no model"):
        run_recbole(config_file_list=[tmp_path / "empty.yaml"])
    (tmp_path / "list.yaml").write_text("- 3\n")
    with pytest.raises(ConfigError, match="holds no settings"):
        run_recbole("EASE", "shop", [tmp_path / "list.yaml"])
