"""A plan: what a fit would need on this machine, and what to change when that is too much.

The model is fitted for a few epochs on samples of growing size (`sample.smaller`), up to the whole log if quick.
In a sample, interactions, users and items shrink by the same factor s, so every cost is a polynomial in s whatever the
dimension, depth and loss of the model:

    memory, setup, one training step      a + b s          (work per interaction and per node)
    ranking in a validation               a + b s + c s^2  (every user against every item)
    methods that are solved               up to s^2 in memory and s^3 in time (a matrix of items x items)

Its coefficients are fitted to the measurements, none of them negative, and its value at s = 1 is the forecast.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rankformer.data.parts import Parts
from rankformer.models.base import Model
from rankformer.models.trained import TrainedModel
from rankformer.planning.machine import memory_now, memory_of_machine, peak_memory
from rankformer.planning.probe import Cost, probe
from rankformer.planning.sample import smaller

FRACTION_OF_MACHINE = 0.9  # the rest is for the system
FIRST_SIZE = 20_000  # interactions of the first sample
GROWTH = 4  # each sample has so many times the interactions of the one before
LONGEST_PROBE = 10.0  # seconds
_SMALLEST_DIM = 8

# The highest power of s in each cost, that of an epoch per step.
DEGREES = {"growth": 1, "setup": 1, "epoch": 1, "validation": 2}
DEGREES_IF_SOLVED = {"growth": 2, "setup": 3}


def make_plan(model: Model, parts: Parts, limit: int | None = None) -> dict[str, Any]:
    """Return what fitting the model on these parts would need, as `rankformer plan --json` prints it.

    model, users, items, interactions: what is fitted, and on how much.
    samples: interactions of each sample that was measured.
    memory: peak bytes, their parts, and the basis: "measured" on the whole log, or "extrapolated".
    limit, fits: bytes the peak should stay within, and whether it does.
    seconds: of the setup, one epoch and one validation; a method that is solved has nothing but setup.
    epochs, validations, seconds_in_all: at most; early stopping can only shorten them.
    changes: settings with which it fits and their peak, the mildest first; empty when it fits, or if none is enough.

    Args:
        model: untrained, on the CPU.
        parts: the data as it was read; its memory counts as it stands now.
        limit: bytes to stay within; nine tenths of the machine's memory by default.
    """
    process, read = memory_now(), peak_memory()
    limit = limit or round(FRACTION_OF_MACHINE * memory_of_machine())
    train, samples = parts.train, list(_samples(model, parts))
    cost = forecast(model, samples, len(train))
    peak = max(read, process + cost.growth)
    epochs = validations = 0
    if isinstance(model, TrainedModel):
        epochs = model.settings.epochs
        validations = -(-epochs // model.settings.validate_every) if len(parts.valid) else 0
    changes = _changes(model, parts, samples[-1], cost) if process < limit < peak else ()
    return {
        "model": model.name,
        "users": train.num_users,
        "items": train.num_items,
        "interactions": len(train),
        "samples": [each.interactions for each in samples],
        "memory": {
            "peak": peak,
            "parts": {"process and data": process, "training" if epochs else "solution": cost.growth},
            "basis": "measured" if samples[-1].interactions == len(train) else "extrapolated",
        },
        "limit": limit,
        "fits": peak <= limit,
        "seconds": {"setup": cost.setup, "epoch": cost.epoch, "validation": cost.validation},
        "epochs": epochs,
        "validations": validations,
        "seconds_in_all": cost.setup + epochs * cost.epoch + validations * cost.validation,
        "changes": [
            {"settings": settings, "peak": process + growth}
            for settings, growth in changes
            if process + growth <= limit
        ],
    }


def forecast(model: Model, samples: Sequence[Cost], whole: int) -> Cost:
    """Return the cost at `whole` interactions that the costs of samples of the same shape lead to."""

    batch = None if _batch_shrinks(model) else getattr(model.settings, "batch_size", None)

    def steps(interactions: int) -> int:
        return 1 if batch is None else -(-interactions // batch)

    degrees = DEGREES if isinstance(model, TrainedModel) else DEGREES_IF_SOLVED
    per_step = [replace(each, epoch=each.epoch / steps(each.interactions)) for each in samples]
    found = {
        name: extrapolated([(each.interactions, getattr(each, name)) for each in per_step], whole, degree)
        for name, degree in degrees.items()
    }
    epoch = steps(whole) * found.get("epoch", 0.0)
    return Cost(whole, round(found["growth"]), found["setup"], epoch, found.get("validation", 0.0))


def extrapolated(points: Sequence[tuple[float, float]], target: float, degree: int) -> float:
    """Return the value at `target` of the polynomial fitted to points (size, value), no coefficient of it negative.

    A point at the target itself is returned as it is. Points count by their relative error; one point alone grows with
    the highest power.
    """
    from scipy.optimize import nnls  # here, since `train` does not load it and its memory is not part of the plan

    measured = dict(points)
    if target in measured:
        return measured[target]
    sizes, values = np.array(list(measured)) / target, np.maximum(list(measured.values()), 1e-9)
    powers = np.arange(degree + 1) if len(measured) > 1 else np.array([degree])
    coefficients, _ = nnls(sizes[:, None] ** powers / values[:, None], np.ones(len(values)))
    return float(coefficients.sum())


def _samples(model: Model, parts: Parts) -> Iterator[Cost]:
    """Yield the costs of growing samples, at least two unless the log is as small as the first."""
    whole, exponent = len(parts.train), 1.5
    last = _probe(model, parts, FIRST_SIZE)
    if last.interactions < whole and last.probe_seconds * GROWTH**exponent > LONGEST_PROBE:
        yield _probe(model, parts, FIRST_SIZE // GROWTH)
    yield last
    while last.interactions < whole:
        size = GROWTH * last.interactions
        size = whole if whole <= 1.5 * size else size
        if last.probe_seconds * (size / last.interactions) ** exponent > LONGEST_PROBE:
            return
        found = _probe(model, parts, size)
        grown, slower = found.interactions / last.interactions, found.probe_seconds / last.probe_seconds
        exponent, last = max(1.0, math.log(slower) / math.log(grown)), found
        yield last


def _probe(model: Model, parts: Parts, size: int, **changes: Any) -> Cost:
    batch, whole = getattr(model.settings, "batch_size", None), len(parts.train)
    if _batch_shrinks(model) and batch is not None:
        changes = {"batch_size": max(1, batch * min(size, whole) // whole), **changes}
    return probe(model, *smaller(parts.train, parts.valid, size), changes)


def _batch_shrinks(model: Model) -> bool:
    """Whether batches are too large for the smallest sample; they then shrink with it, and steps per epoch stay."""
    return (getattr(model.settings, "batch_size", None) or 0) > FIRST_SIZE // GROWTH


def _changes(model: Model, parts: Parts, base: Cost, cost: Cost) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield settings with the growth they lead to, measured on the largest sample.

    Those that give the same embeddings come first, then those that give a smaller and smaller model.
    """
    recomputes = getattr(model.settings, "activations", "recompute") == "recompute"
    thrifty: dict[str, Any] = {} if recomputes else {"activations": "recompute"}
    dims = [getattr(model.settings, "embedding_dim", 0) // part for part in (2, 4, 8)]
    proposals: list[dict[str, Any]] = [
        thrifty,
        *({**thrifty, "embedding_dim": dim} for dim in dims if dim >= _SMALLEST_DIM),
    ]
    lowest = cost.growth
    for settings in filter(None, proposals):
        found = _probe(model, parts, base.interactions, **settings)
        saved = (base.growth - found.growth) * cost.interactions / base.interactions
        growth = max(round(cost.growth - saved), found.growth)
        if growth < lowest:
            lowest = growth
            yield settings, growth
