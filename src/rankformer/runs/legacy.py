"""Run folders of format version 1 (rankformer 0.1), read as if they were of today's."""

from typing import Any

# Hyperparameters that have another name now, for all models and for single ones.
_RENAMED = {"start": "initialization", "repeats": "duplicates", "rounds": "iterations", "penalty": "l2_on"}
_RENAMED_OF = {
    "xsimgcl": {"contrast_layer": "cl_layer"},
    "nodeformer": {"tau": "temperature"},
    "difformer": {"alpha": "update_weight"},
    "sgformer": {"alpha": "update_weight"},
    "mgformer": {"objective": "loss"},
    "gformer": {"l2": "weight_decay"},
    "dualvae": {"l2": "weight_decay"},
}
_VALUES = {("l2_on", "table"): "initial", ("initialization", "xavier"): "xavier-uniform"}


def upgrade_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of version 1 with the names of version 2; whatever is missing is left for the checks."""
    upgraded = {**manifest, "version": 2}
    model, settings = manifest.get("model"), manifest.get("settings")
    if isinstance(model, str) and isinstance(settings, dict):
        upgraded["settings"] = upgrade_settings(model, settings)
    scorer = {**manifest["scorer"]} if isinstance(manifest.get("scorer"), dict) else {"kind": "embeddings"}
    if "count_repeats" in scorer:
        scorer["count_duplicates"] = scorer.pop("count_repeats")
    rule = upgraded.pop("fold_in", None)
    if isinstance(rule, dict) and "own_row" in rule:
        rule = {("own_embedding" if name == "own_row" else name): value for name, value in rule.items()}
    if isinstance(rule, dict) and rule.get("rule") == "least-squares":
        rule = {**rule, "offset": 0.0, "exponent": 0.0}
    if scorer.get("kind") == "embeddings" or rule is not None:
        scorer["fold_in"] = rule
    upgraded["scorer"] = scorer
    return upgraded


def upgrade_settings(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return hyperparameters of version 0.1 under the names and with the values of today."""
    renamed = {**_RENAMED, **_RENAMED_OF.get(model, {})}
    found = {renamed.get(name, name): value for name, value in settings.items()}
    for name, value in found.items():
        if isinstance(value, str):
            found[name] = _VALUES.get((name, value), value)
    if model == "mgformer" and found.get("initialization") == "xavier-uniform":
        found["initialization"] = "xavier-normal"
    if model == "gformer" and isinstance(found.get("weight_decay"), float):
        found["weight_decay"] *= 2  # was the weight of the squared length, not of half of it
    if model == "ials" and isinstance(found.get("weight"), float) and isinstance(found.get("regularization"), float):
        found |= {"frequency_exponent": 0.0, "regularization": found["regularization"] / max(found["weight"] - 1, 1e-9)}
    if model == "difformer" and isinstance(found.get("graph_weight"), float) and found["graph_weight"] <= 0:
        found["graph_weight"] = None
    return found


def upgrade_tensor_name(name: str) -> str:
    """Return today's name of a stored tensor."""
    return name.removeprefix("scorer.").replace("network.scorer.", "network.score_positions.")
