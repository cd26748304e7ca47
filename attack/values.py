"""Settings that nobody means: each is taken, or refused in one line; a fit is finite, or stopped with its cause."""

import random
from collections import Counter
from typing import Any

from attack.regressions import Findings, described, kind
from rankformer.errors import RankformerError

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 63, 64, 65, 10**3, 10**6, 2**31, 2**63, 2**64, 10**400, -(10**400), True, None),
    *(0.0, -0.0, 1e-320, 1e-38, 1e-9, 0.5, 1.0, 1e9, 3e38, 1e39, 1e308, float("inf"), float("-inf"), float("nan")),
    *(
        "",
        "x",
        "none",
        "9" * 5000,
        "1e999",
        "ndcg@20",
        "ndcg@0",
        "ndcg@" + "9" * 30,
        [],
        {},
        [1],
        (1, 2),
        b"x",
        "\ud800",
    ),
)


def settings(count: int, fits: int, seed: int) -> dict[str, Any]:
    """Give models settings at random, and fit some of those that were taken on a small log.

    Returns how many were taken, refused, fitted, stopped by a `TrainingError`, and every other error.
    """
    from rankformer.models.registry import MODELS

    rng, found, unexpected = random.Random(seed), Counter[str](), []
    findings = Findings("settings", outcome, fewer=("settings",))

    def seen(case: dict[str, Any]) -> str:
        got = outcome(case)
        if kind(got):
            unexpected.append(f"{'fit ' * case['fit']}{case['model']} {_short(case['settings'])}: {got}")
            findings.add(case, got)
        else:
            found[got] += 1
        return got

    for _ in range(count):
        name = rng.choice(list(MODELS))
        names = list(MODELS[name].settings_class.model_fields)
        changes = {rng.choice(names): rng.choice(NUMBERS) for _ in range(rng.randint(1, 3))}
        case = {"model": name, "settings": changes, "fit": False}
        if seen(case) == "taken" and found["fits"] < fits and _is_small(name, changes) and rng.random() < 0.3:
            found["fits"] += 1
            seen({**case, "fit": True})
    return {**found, "settings": count, "unexpected": unexpected}


def outcome(case: dict[str, Any]) -> str:
    """Build a model with settings and, where the case says so, fit it on a small log; return what came of it."""
    from tests.logs import random_log

    from rankformer.models.registry import MODELS

    model = MODELS[case["model"]]
    is_long = case["fit"] and "epochs" in model.settings_class.model_fields
    try:
        built = model(**{**case["settings"], **({"epochs": 3, "validate_every": 2} if is_long else {})})
        if not case["fit"]:
            return "taken"
        is_finite = built.fit(random_log(size=60)).recommender.scorer.is_finite()
        return "finite" if is_finite else "numbers that are not finite"
    except RankformerError as error:
        if "\n" in str(error) or len(str(error)) > 1000:
            return f"a long message, {described(error)}"
        return "stopped" if case["fit"] else "refused"
    except Exception as error:
        return described(error)


def _is_small(name: str, changes: dict[str, Any]) -> bool:
    from rankformer.models.registry import MODELS

    chosen = MODELS[name](**changes).settings.model_dump()
    return all(chosen.get(name, 0) is None or chosen.get(name, 0) <= most for name, most in _SMALL.items())


_SMALL = {
    **dict.fromkeys(("num_layers", "graph_layers", "attention_layers", "position_layers", "bias_order"), 8),
    **dict.fromkeys(("embedding_dim", "hidden_dim", "output_dim", "decoder_dim", "encoding_dim", "factors"), 128),
    **dict.fromkeys(("num_heads", "num_features", "num_anchors", "num_samples", "num_aspects", "iterations"), 128),
}


def _short(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:20]}" for name, value in changes.items())
