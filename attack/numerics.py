"""Numerics as an attack on every method: extreme degrees, weights and scales, and each hyperparameter at its extremes.

A fit ends with finite numbers, or is stopped by an error of one line. Where one hyperparameter was made extreme, that
error names it; where a training was under way, it has the step.
"""

import re
import warnings
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from attack.regressions import Findings, described, kind
from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, RankformerError, TrainingError

EXTREMES = (0.0, 1e-38, 1e-9, 1e3, 1e9, 1e20, 3e38)
NOT_NAMED = "setting not named"
SHORT = {"epochs": 3, "validate_every": 2, "iterations": 3}
SMALL = {"embedding_dim": 8, "factors": 8}
# Integers that make a fit large rather than its numbers extreme: the settings campaign has their bounds.
SIZES = ("dim", "layers", "heads", "features", "anchors", "samples", "aspects", "factors", "epochs", "iterations")


def logs() -> dict[str, Interactions]:
    """Return small logs of extreme degrees and weights."""
    rng = np.random.default_rng(0)
    every = np.array([(user, item) for user in range(12) for item in range(10)])
    pairs = {
        "one interaction": np.array([(0, 0)]),
        "one user with every item": np.array([(0, item) for item in range(40)]),
        "one item of every user": np.array([(user, 0) for user in range(40)]),
        "everyone has everything": every,
        "nothing in common": np.array([(each, each) for each in range(20)]),
        "one user has all, the others one": np.array([(0, i) for i in range(40)] + [(u, u) for u in range(1, 40)]),
        "the same interaction a thousand times": np.concatenate([np.zeros((1000, 2), int), every[:20]]),
        "a chain": np.array([(each + more, each) for each in range(20) for more in (0, 1)]),
    }
    found = {name: _log(each, name) for name, each in pairs.items()}
    some = every[rng.permutation(len(every))[:60]]
    for name, weights in {
        "weights of 1e-38": np.full(60, 1e-38),
        "weights of 3e38": np.full(60, 3e38),
        "weights from 1e-30 to 1e30": np.logspace(-30, 30, 60),
        "one weight of 1e30": np.where(np.arange(60) == 7, 1e30, 1.0),
    }.items():
        found[name] = _log(some, name, weights)
    return found


def numerics(scale: float = 1.0) -> dict[str, Any]:
    """Fit every method to every extreme log, and with each hyperparameter at each extreme; return what went wrong.

    Of a scale below 1, such a part of all that, spread over everything.
    """
    from rankformer.models.registry import MODELS

    found, unexpected, unnamed = Counter[str](), [], []
    findings = Findings("numerics", outcome, fewer=("settings", "rows"))
    stride, number = max(1, round(1 / scale)), count()

    def fitted(case: dict[str, Any], what: str) -> None:
        got = outcome(case)
        found[got.partition(":")[0]] += 1
        if kind(got):
            (unnamed if kind(got) == NOT_NAMED else unexpected).append(f"{case['model']} {what}: {got}")
            findings.add(case, got)

    def due() -> bool:
        return next(number) % stride == 0

    ordinary = [[u, i] for u in range(15) for i in range(12) if (u * 7 + i * 5) % 3 == 0]
    for method, model in MODELS.items():
        short = {name: value for name, value in (SHORT | SMALL).items() if name in model.settings_class.model_fields}
        case = {"model": method, "short": short, "settings": {}, "rows": ordinary}
        for name, log in logs().items():
            if due():
                fitted({**case, "rows": _rows(log)}, f"on {name}")
        for name, setting in model.settings_class.hyperparameter_fields().items():
            if name in SHORT or any(word in name for word in SIZES):
                continue
            for value in filter(lambda _: due(), _values(setting.default)):
                fitted({**case, "settings": {name: value}}, f"{name}={value}")
    methods = {"methods": len(MODELS), "fits": found.total()}
    return {**methods, **{name: found[name] for name in ("finite", "stopped", "refused")}} | {
        "unexpected": unexpected,
        "setting not named": unnamed,
    }


def outcome(case: dict[str, Any]) -> str:
    """Fit a method, for a short time and with further settings, to the rows of a case; return what came of it."""
    from rankformer.models.registry import MODELS

    if not case["rows"]:
        return "refused"
    rows = np.array(case["rows"], np.float64)
    log = _log(rows[:, :2].astype(int), "log", rows[:, 2] if rows.shape[1] > 2 else None)
    got, message = _fitted(MODELS[case["model"]], {**case["short"], **case["settings"]}, log)
    if got == "stopped" and not all(name in message for name in case["settings"]):
        return f"{NOT_NAMED}: {message}"
    return message if got == "unexpected" else got


def _rows(log: Interactions) -> list[list[float]]:
    columns = [log.users, log.items] + ([] if log.weights is None else [log.weights])
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _fitted(model: Any, settings: dict[str, Any], log: Interactions) -> tuple[str, str]:
    """Return what became of a fit ("finite", "stopped", "refused" or "unexpected") and its message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scorer = model(**settings).fit(log).recommender.scorer
        return ("finite", "") if scorer.is_finite() else ("unexpected", "numbers that are not finite")
    except TrainingError as error:
        text = str(error)
        is_clear = "\n" not in text and len(text) < 500 and re.search(r"step \d+|no finite solution|member", text)
        return ("stopped", text) if is_clear else ("unexpected", f"unclear: {text[:500]}")
    except ConfigError as error:
        return "refused", str(error)
    except RankformerError as error:
        return ("refused", str(error)) if "\n" not in str(error) else ("unexpected", f"unclear: {error}"[:500])
    except Exception as error:
        return "unexpected", described(error)


def _values(default: Any) -> tuple[Any, ...]:
    if isinstance(default, bool) or not isinstance(default, int | float | None):
        return ()
    return (*EXTREMES, -1.0) if isinstance(default, float | None) else (0, 1, 2**31 - 1, -1)


def _log(pairs: Any, name: str, weights: Any = None) -> Interactions:
    weights = None if weights is None else np.asarray(weights, np.float32)
    log = Interactions.from_indices(pairs[:, 0], pairs[:, 1], name=name)
    return log if weights is None else replace(log, weights=weights)
