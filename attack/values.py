"""Settings that nobody means: each is taken, or refused in one line; a fit is finite, or stopped with its cause."""

import random
import traceback
from collections import Counter
from typing import Any

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
    from tests.logs import random_log

    from rankformer.models.registry import MODELS

    rng, found, unexpected = random.Random(seed), Counter[str](), []
    log = random_log(size=60)
    for _ in range(count):
        model = MODELS[rng.choice(list(MODELS))]
        names = list(model.settings_class.model_fields)
        changes = {rng.choice(names): rng.choice(NUMBERS) for _ in range(rng.randint(1, 3))}
        try:
            built = model(**changes)
            found["taken"] += 1
        except RankformerError as error:
            found["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 1000:
                unexpected.append(f"{model.name} {_short(changes)}: a message of {len(str(error))} characters")
            continue
        except Exception:
            unexpected.append(f"{model.name} {_short(changes)}: {traceback.format_exc().splitlines()[-1]}")
            continue
        chosen = built.settings.model_dump()
        small = all(chosen.get(name, 0) is None or chosen.get(name, 0) <= most for name, most in _SMALL.items())
        if found["fits"] < fits and small and rng.random() < 0.3:
            found["fits"] += 1
            short = {"epochs": 3, "validate_every": 2} if "epochs" in chosen else {}
            try:
                fitted = model(**{**changes, **short}).fit(log)
                found["finite"] += fitted.recommender.scorer.is_finite()
            except RankformerError:
                found["stopped"] += 1
            except Exception:
                unexpected.append(f"fit {model.name} {_short(changes)}: {traceback.format_exc().splitlines()[-1]}")
    return {**found, "settings": count, "unexpected": unexpected}


_SMALL = {
    **dict.fromkeys(("num_layers", "graph_layers", "attention_layers", "position_layers", "bias_order"), 8),
    **dict.fromkeys(("embedding_dim", "hidden_dim", "output_dim", "decoder_dim", "encoding_dim", "factors"), 128),
    **dict.fromkeys(("num_heads", "num_features", "num_anchors", "num_samples", "num_aspects", "iterations"), 128),
}


def _short(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name}={str(value)[:20]}" for name, value in changes.items())
