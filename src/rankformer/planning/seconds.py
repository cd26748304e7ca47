"""Seconds of an epoch and of a validation, from a few real training steps.

A log small enough is timed itself. A larger one is timed at two smaller sizes of the same shape (`sample.smaller`) and
continued: every cost of a step grows with pairs or with nodes, and at a fixed shape those grow together, so that width,
depth and batch need no formula of their own. Growth is a little faster than in proportion, because rows that are looked
up in no order find less of themselves in the cache: the exponent is read off the two sizes (1.17 where it was measured,
from 100,000 to 4,000,000 pairs).
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from rankformer.data.interactions import Interactions
from rankformer.evaluation.metrics import parse_metrics
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.base import GradientModel
from rankformer.planning.sample import smaller
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.top_k import top_k
from rankformer.training.memory import kept_memory
from rankformer.training.trainer import TrainingLoop

PILOT_PAIRS = 20_000
LONGEST_STEP = 0.7  # seconds that one timed step may take
STEEPEST_GROWTH = 1.25  # an exponent beyond it is noise
_TIMED_STEPS = 3
_RANKING_SECONDS = 0.1  # a time from which lists of all users are told


@dataclass(frozen=True)
class Seconds:
    """What time a training takes.

    Attributes:
        epoch: seconds of one epoch.
        validation: seconds of one validation, 0 without a validation part.
        timed_pairs: size of the largest log that steps were timed on.
    """

    epoch: float
    validation: float
    timed_pairs: int


def measure_seconds(model: GradientModel, train: Interactions, valid: Interactions | None) -> Seconds:
    """Return the seconds of an epoch and a validation, after a few seconds of trying."""
    first = timing_of(model, train, PILOT_PAIRS)
    affordable = max(first.pairs, int(first.pairs * LONGEST_STEP / max(first.step, 1e-6)))
    second = timing_of(model, train, len(train) if affordable > 0.7 * len(train) else affordable)
    if second.pairs < len(train):
        first = timing_of(model, train, second.pairs // 4)
    step = continued((first.pairs, first.step), (second.pairs, second.step), len(train))
    forward = continued((first.pairs, first.forward), (second.pairs, second.forward), len(train))
    validation = 0.0 if valid is None else forward + _ranking_seconds(model, train, valid)
    return Seconds(step * steps_per_epoch(model, len(train)), validation, second.pairs)


def steps_per_epoch(model: GradientModel, pairs: int) -> int:
    """Return how many optimiser steps an epoch has."""
    size = model.settings.batch_size
    return 1 if size is None else -(-pairs // size)


def continued(first: tuple[int, float], second: tuple[int, float], pairs: int) -> float:
    """Return the seconds at a size beyond two measured ones, on the power law through both.

    Args:
        first: pairs and seconds of the smaller measurement.
        second: those of the larger one, which is returned as it is if it reaches `pairs`.
        pairs: the size asked for.
    """
    (x0, y0), (x1, y1) = first, second
    if pairs <= x1:
        return y1
    exponent = math.log(y1 / y0) / math.log(x1 / x0) if x1 > x0 and min(y0, y1) > 0 else 1.0
    return y1 * math.pow(pairs / x1, min(max(exponent, 1.0), STEEPEST_GROWTH))


@dataclass(frozen=True)
class Timing:
    """Median seconds of one step and of one forward pass on a log of so many pairs."""

    pairs: int
    step: float
    forward: float


def timing_of(model: GradientModel, train: Interactions, pairs: int) -> Timing:
    """Return the timing of steps on about so many pairs; a mini-batch shrinks with them."""
    sample = smaller(train, pairs)
    graph = BipartiteGraph.from_interactions(sample)
    loop = TrainingLoop(model.build(graph.num_nodes), graph, model.settings, model.seed)
    edges = _batch_edges(model, len(sample), len(train))
    with kept_memory():
        loop.one_step(edges)  # the first one also sets up the optimiser
        step = statistics.median(_seconds(lambda: loop.one_step(edges)) for _ in range(_TIMED_STEPS))
        forward = _seconds(loop.embeddings)
    return Timing(len(sample), step, forward)


def _batch_edges(model: GradientModel, pairs: int, whole: int) -> torch.Tensor | None:
    size = model.settings.batch_size
    if size is None or size >= whole:
        return None
    return torch.randperm(pairs, generator=torch.Generator().manual_seed(0))[: max(1, size * pairs // whole)]


def _ranking_seconds(model: GradientModel, train: Interactions, valid: Interactions) -> float:
    """Return the seconds that the lists of all validation users take, from those of a few."""
    width = model.build(2).table.shape[1]
    users = len(np.unique(valid.users))
    cutoff = max(metric.cutoff for metric in parse_metrics(model.settings.metric))
    rows = Embeddings(torch.randn(1, width), torch.randn(train.num_items, width))
    few = min(16, users)
    while True:
        seconds = _seconds(partial(top_k, rows, torch.zeros(few, dtype=torch.long), cutoff))
        if few == users or seconds >= _RANKING_SECONDS:
            return seconds * users / few
        few = min(4 * few, users)


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
