"""RecBole: `run_recbole`, which takes its data files and configurations and returns results in its form.

RecBole itself is not needed. A model of RecBole is fitted as the one of this package that computes the same, with the
values that RecBole has by default; models of this package go by their own names and settings. Filters, splits (the
random ones too, number for number) and the mask of training and validation items are RecBole's, so that a result can
stand beside one of RecBole. A setting that changes results there and has no counterpart here is rejected.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rankformer.data.interactions import Interactions
from rankformer.data.parts import Parts
from rankformer.errors import ConfigError, DataError
from rankformer.evaluation.evaluator import evaluate
from rankformer.models.base import Model
from rankformer.models.registry import model_class

Config = dict[str, Any]
Labels = NDArray[np.int8]

DEFAULTS: Config = {
    "data_path": "dataset/",
    "seed": 2020,
    "field_separator": "\t",
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "TIME_FIELD": "timestamp",
    "val_interval": None,
    "user_inter_num_interval": "[0,inf)",
    "item_inter_num_interval": "[0,inf)",
    "benchmark_filename": None,
    "eval_args": {"split": {"RS": [0.8, 0.1, 0.1]}, "group_by": "user", "order": "RO", "mode": "full"},
    "metrics": ["Recall", "MRR", "NDCG", "Hit", "Precision"],
    "topk": [10],
    "valid_metric": "MRR@10",
    "metric_decimal_place": 4,
}
METRICS = {"recall": "recall", "mrr": "mrr", "ndcg": "ndcg", "hit": "hit_rate", "precision": "precision", "map": "map"}
# What has no effect on results, or only one of the values that have an effect here.
HARMLESS = """
    gpu_id worker use_gpu device state reproducibility checkpoint_dir show_progress save_dataset nproc
    dataset_save_path save_dataloaders dataloaders_save_path log_wandb wandb_project shuffle loss_decimal_place
    eval_batch_size load_col unload_col unused_col RATING_FIELD LABEL_FIELD NEG_PREFIX seq_separator
    filter_inter_by_user_or_item valid_metric_bigger enable_amp enable_scaler require_pow dataset model"""
FIXED: Config = {
    "learner": "adam",
    "weight_decay": 0.0,
    "repeatable": False,
    "threshold": None,
    "rm_dup_inter": None,
    "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1, "dynamic": False},
    "knn_method": "item",
}

# RecBole's name -> the model here, its settings by RecBole's names with RecBole's defaults, and what else is set.
_TRAINED = {
    "epochs": ("epochs", 300),
    "train_batch_size": ("batch_size", 2048),
    "learning_rate": ("learning_rate", 0.001),
    "eval_step": ("validate_every", 1),
    "stopping_step": ("patience", 10),
    "embedding_size": ("embedding_dim", 64),
}
# No setting is searched: the model has those of the configuration and RecBole's defaults.
_PLAIN, _COUNTED = {"tune": False, "schedule": "constant"}, {"tune": False, "duplicates": "count"}
MODELS: dict[str, tuple[str, dict[str, tuple[str, Any]], Config]] = {
    "Pop": ("popularity", {}, {}),
    "ItemKNN": ("item-knn", {"k": ("neighbours", 100), "shrink": ("shrinkage", 0.0)}, _COUNTED),
    "EASE": ("ease", {"reg_weight": ("regularization", 250.0)}, {**_COUNTED, "keep": None}),
    "BPR": ("mf", _TRAINED, {**_PLAIN, "l2": 0.0, "initialization": "xavier-normal"}),
    "LightGCN": (
        "lightgcn",
        {**_TRAINED, "n_layers": ("num_layers", 2), "reg_weight": ("l2", 1e-5)},
        {**_PLAIN, "initialization": "xavier-uniform"},
    ),
}


def run_recbole(
    model: str | None = None,
    dataset: str | None = None,
    config_file_list: Sequence[str | Path] | None = None,
    config_dict: Mapping[str, Any] | None = None,
) -> Config:
    """Return what RecBole's function of this name returns, and the fitted model under "model".

    Args:
        model: name of a model of RecBole or of this package; by default that of the configuration.
        dataset: name of the dataset, in the same way; its files are in `data_path`/name.
        config_file_list: YAML files, later ones over earlier ones.
        config_dict: settings over those of the files.
    """
    config = {**_read(config_file_list or ()), **(config_dict or {})}
    names = {"model": model or config.get("model"), "dataset": dataset or config.get("dataset")}
    for role, name in names.items():
        if not isinstance(name, str):
            raise ConfigError(f"the configuration names no {role}; add {role}: NAME or pass {role}=")
    for name, value in FIXED.items():
        given = config.get(name)
        given = {key: given.get(key, value[key]) for key in value} if isinstance(given, dict) and value else given
        if given is not None and given != value:
            raise ConfigError(f"{name}={config[name]!r} has no counterpart here; expected {value!r}")
    known = {**DEFAULTS, **config}
    parts = load_parts(known, str(names["dataset"]))
    fitted = make_model(str(names["model"]), config, known).fit(parts.train, parts.valid, verbose=False)
    wanted = {
        f"{each.lower()}@{k}": f"{_metric(each)}@{k}" for each in _list(known["metrics"]) for k in _list(known["topk"])
    }

    def measure(part: Interactions, mask: str) -> dict[str, float]:
        found = evaluate(fitted, part, metrics=list(wanted.values()), valid=parts.valid, mask=mask).metrics
        return {theirs: round(found[ours], int(known["metric_decimal_place"])) for theirs, ours in wanted.items()}

    valid = measure(parts.valid, "train") if len(parts.valid) else {}
    return {
        "best_valid_score": valid.get(known["valid_metric"].lower()),
        "valid_score_bigger": True,
        "best_valid_result": valid,
        "test_result": measure(parts.test, "train+valid"),
        "model": fitted,
    }


def make_model(name: str, config: Mapping[str, Any], known: Mapping[str, Any]) -> Model:
    """Return the model that a configuration describes, not fitted."""
    ours, renamed, fixed = MODELS.get(name, (name, {}, {}))
    kind = model_class(ours)
    given = {key: value for key, value in config.items() if key not in {*DEFAULTS, *HARMLESS.split(), *FIXED}}
    if name in MODELS:
        for key in given.keys() - renamed.keys():
            raise ConfigError(f"{key}={given[key]!r} is not a setting of {name} here; known are {', '.join(renamed)}")
        given = fixed | {key: given.get(theirs, value) for theirs, (key, value) in renamed.items()}
    metric, _, cutoff = str(known["valid_metric"]).partition("@")
    return kind(**{"metric": f"{_metric(metric)}@{cutoff}", "seed": known["seed"], **given})


def load_parts(config: Mapping[str, Any], dataset: str) -> Parts:
    """Return train, valid and test of a dataset in RecBole's files, filtered and split as RecBole does."""
    folder = Path(config["data_path"]) / dataset
    if config["benchmark_filename"]:
        logs = [_log(config, folder / f"{dataset}.{part}.inter") for part in config["benchmark_filename"]]
        if len(logs) != 3:
            raise ConfigError(f"benchmark_filename={config['benchmark_filename']}: expected three parts")
        tables = Interactions.parts_of([log.to_arrow() for log in logs], user="user", item="item")
        return Parts(
            *(replace(part, name=f"{dataset}/{name}") for part, name in zip(tables, Parts._fields, strict=True))
        )
    log = _filtered(_log(config, folder / f"{dataset}.inter"), config)
    return Parts.of(replace(log, name=dataset, weights=None), _split(log, config))


def _read(files: Sequence[str | Path]) -> Config:
    import yaml

    config: Config = {}
    for path in files:
        try:
            found = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:200]}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{path} holds no settings; expected lines such as epochs: 10")
        config |= found
    return config


def _log(config: Mapping[str, Any], path: Path) -> Interactions:
    by_value = list(config["val_interval"] or {})
    if len(by_value) > 1:
        raise ConfigError(f"val_interval filters by {', '.join(by_value)}; one field is supported")
    columns = {"user": config["USER_ID_FIELD"], "item": config["ITEM_ID_FIELD"]}
    order = config["eval_args"].get("order", "RO")
    columns |= {"time": config["TIME_FIELD"] if order == "TO" else ""}
    columns |= {"weight": by_value[0] if by_value else "", "title": ""}
    return Interactions.read(path, format="inter", delimiter=config["field_separator"], **columns)


def _filtered(log: Interactions, config: Mapping[str, Any]) -> Interactions:
    """Return what RecBole keeps: values and counts within their intervals."""
    for interval in (config["val_interval"] or {}).values():
        assert log.weights is not None
        log = log.keep(_within(interval)(log.weights))
    bounds = [_within(config[f"{side}_inter_num_interval"]) for side in ("user", "item")]
    while len(log):
        counts = np.bincount(log.users)[log.users], np.bincount(log.items)[log.items]
        kept = bounds[0](counts[0]) & bounds[1](counts[1])
        if kept.all():
            return log
        log = log.keep(kept)
    raise DataError(f"the intervals leave no interaction of {log.name}; use wider ones")


def _within(text: str | None) -> Callable[[NDArray[Any]], NDArray[np.bool_]]:
    found = re.fullmatch(r"([\[(])\s*(\S+?)\s*,\s*(\S+?)\s*([\])])", (text or "[-inf,inf)").strip())
    if found is None:
        raise ConfigError(f"{text!r} is not an interval; write one such as [5,inf)")
    low, high = float(found[2]), float(found[3])
    return lambda values: np.asarray(
        (values >= low if found[1] == "[" else values > low) & (values <= high if found[4] == "]" else values < high)
    )


def _split(log: Interactions, config: Mapping[str, Any]) -> Labels:
    """Return the part of each interaction, as RecBole's `RS` and `LS` choose it."""
    given = {**DEFAULTS["eval_args"], **config["eval_args"]}
    if given["mode"] not in ("full", {"valid": "full", "test": "full"}):
        raise ConfigError(f"eval_args mode={given['mode']!r}: sampled candidates are not supported; use full")
    if given["order"] == "RO":  # the generator and the draw that RecBole has after its init_seed
        order = torch.randperm(len(log), generator=torch.Generator().manual_seed(int(config["seed"]))).numpy()
    else:
        order = np.argsort(log.times, kind="stable")  # type: ignore[arg-type]
    groups = log.users[order] if given["group_by"] == "user" else np.zeros(len(log), dtype=np.int32)
    rows = np.argsort(groups, kind="stable")
    [(kind, value)] = given["split"].items()
    if kind not in ("RS", "LS") or (kind == "RS" and len(value) != 3):
        raise ConfigError(f"eval_args split={given['split']}: expected RS with three ratios, or LS")
    labels = np.zeros(len(log), dtype=np.int8)
    for group in np.split(order[rows], np.cumsum(np.bincount(groups))[:-1]):
        sizes = _ratio_sizes(len(group), value) if kind == "RS" else _leave_out_sizes(len(group), value)
        labels[group] = np.repeat(np.arange(3), sizes)
    return labels


def _ratio_sizes(total: int, ratios: Sequence[float]) -> list[int]:
    """Return the sizes of the parts: rounded down, at least 1 where train keeps 1, and the rest is train's."""
    ratios = [ratio / sum(ratios) for ratio in ratios]
    sizes = [0, *(int(ratio * total) for ratio in ratios[1:])]
    sizes[0] = total - sum(sizes)
    for part in (2, 1):
        if sizes[0] > 1 and 0 < ratios[part] * total < 1:
            sizes[part], sizes[0] = sizes[part] + 1, sizes[0] - 1
    return sizes


def _leave_out_sizes(total: int, mode: str) -> list[int]:
    """Return the sizes of the parts where the last interaction or two of a user are held out, all but one at most."""
    if mode not in ("valid_and_test", "valid_only", "test_only"):
        raise ConfigError(f"eval_args split LS={mode!r}: expected valid_and_test, valid_only or test_only")
    out = min(2 if mode == "valid_and_test" else 1, total - 1)
    valid = out if mode == "valid_only" else out // 2
    return [total - out, valid, out - valid]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _metric(name: str) -> str:
    if name.lower() not in METRICS:
        raise ConfigError(f"metric {name!r} has no counterpart here; known are {', '.join(METRICS)}")
    return METRICS[name.lower()]
