"""The counted memory against the memory that tensors and processes really take."""

import json
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from rankformer.graph.bipartite import BipartiteGraph
from rankformer.models.rankformer import RankformerNetwork, RankformerSettings
from rankformer.planning.memory import SMALL, Shape, forecast_rankformer
from rankformer.planning.sample import invented
from rankformer.training.trainer import TrainingLoop

pytestmark = pytest.mark.usefixtures("one_thread")

USERS, ITEMS, PAIRS = 4_000, 5_000, 60_000
MODES = ("float32", "bfloat16", "recompute")


def live_peak_of_step(settings):
    """Most bytes of tensors that one training step has alive beyond those that stand all the time."""
    graph = BipartiteGraph.from_interactions(invented(USERS, ITEMS, PAIRS))
    loop = TrainingLoop(RankformerNetwork(graph.num_nodes, settings, 0), graph, settings, 0)
    edges = None if settings.batch_size is None else torch.arange(settings.batch_size)
    loop.one_step(edges)
    loop.optimizer.clear_gradients()  # the last gradient would count as standing
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop.one_step(edges)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = top = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        top = max(top, live)
    return top


def counted(settings, **changes):
    """Bytes of the step in the forecast: what is kept, and what comes and goes."""
    shape = Shape(**{"num_users": USERS, "num_items": ITEMS, "num_pairs": PAIRS, "validates": False, **changes})
    parts = forecast_rankformer(shape, settings, 0).parts
    return sum(size for name, size in parts.items() if name.startswith(("kept", "at work")))


@pytest.mark.parametrize(
    "changes",
    [
        *({"activations": mode} for mode in MODES),
        *({"activations": mode, "num_layers": 8} for mode in MODES),
        {"num_layers": 1},
        {"negatives": "pull", "benchmark": False, "alpha": 0},
        {"batch_size": 1_000},
        {"batch_size": 50_000},
    ],
    ids=str,
)
def test_the_count_is_what_a_step_allocates(changes):
    settings = RankformerSettings(**{"embedding_dim": 64, "num_layers": 4, "start": "normal", **changes})
    assert counted(settings) == pytest.approx(live_peak_of_step(settings), rel=0.12)


def test_the_parts_add_up_to_the_peak():
    forecast = forecast_rankformer(Shape(USERS, ITEMS, PAIRS), RankformerSettings(), process=123_000_000)
    assert sum(forecast.parts.values()) == forecast.peak
    assert forecast.parts["process and data"] == 123_000_000
    assert min(forecast.parts.values()) >= 0
    assert forecast.basis == "counted"


@pytest.mark.parametrize(
    ("more", "shape"),
    [
        ({"embedding_dim": 128}, {}),
        ({"num_layers": 6}, {}),
        ({"batch_size": 10**6}, {}),
        ({}, {"num_pairs": 10**7}),
        ({}, {"num_users": 10**6}),
        ({}, {"num_items": 10**6}),
    ],
    ids=str,
)
def test_more_of_anything_takes_more(more, shape):
    sizes = {"num_users": 200_000, "num_items": 100_000, "num_pairs": 3_000_000}
    plain = forecast_rankformer(Shape(**sizes), RankformerSettings(), 0).peak
    assert forecast_rankformer(Shape(**{**sizes, **shape}), RankformerSettings(**more), 0).peak > plain


def test_large_blocks_are_counted_by_hand():
    """A million nodes with few pairs: nothing but tables of rows matters, and they are handed back when freed."""
    nodes, width, layers = 1_000_000, 64, 4
    rows = 4 * nodes * width
    assert rows >= SMALL
    shape = Shape(nodes // 2, nodes // 2, 1000, validates=False)
    settings = RankformerSettings(embedding_dim=width, num_layers=layers, start="normal")
    tables = 3 + (layers + 1) + 6  # table and moments, outputs, backward pass of a layer
    assert forecast_rankformer(shape, settings, 0).peak == pytest.approx(tables * rows, rel=0.1)


CHILD = """
import json
import torch
torch.set_num_threads(1)
import numpy as np
from rankformer.models.rankformer import Rankformer
from rankformer.planning.machine import memory_now, peak_memory
from rankformer.planning.memory import Shape, forecast_rankformer
from rankformer.planning.probe import warm_up
from rankformer.planning.sample import invented
log = invented(15_000, 20_000, 500_000)
few = np.arange(len(log)) < 200
model = Rankformer(num_layers=3, epochs=2, validate_every=1)
warm_up(model)
process = memory_now()
forecast = forecast_rankformer(Shape(15_000, 20_000, 500_000), model.settings, process)
model.fit(log.rows(~few), log.rows(few))
print(json.dumps({"process": process, "told": forecast.peak, "found": peak_memory()}))
"""


def test_the_forecast_is_near_the_peak_of_a_real_process():
    run = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    assert answer["told"] / answer["found"] == pytest.approx(1, abs=0.17)  # within a factor of 1.2 either way
    growth = (answer["told"] - answer["process"]) / (answer["found"] - answer["process"])
    assert 0.7 < growth < 1.4
