"""Nothing of size E x d, n x d x d or m x d x d is ever made: neither by a layer, nor the loss, nor a training step."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from rankformer.data.interactions import Interactions
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers import RankWeights, rank_attention
from rankformer.losses.bpr import bpr
from rankformer.losses.l2 import batch_l2
from rankformer.models.rankformer import RankformerNetwork, RankformerSettings
from rankformer.training.context import FitContext
from rankformer.training.trainer import train

USERS, ITEMS, EDGES, WIDTH = 300, 200, 20_000, 32
TOO_MANY_BYTES = 4 * min(EDGES * WIDTH, USERS * WIDTH**2, ITEMS * WIDTH**2)


@pytest.fixture(scope="module")
def graph():
    pairs = np.random.default_rng(0).choice(USERS * ITEMS, EDGES, replace=False)
    return BipartiteGraph.from_interactions(Interactions.from_indices(pairs // ITEMS, pairs % ITEMS, USERS, ITEMS))


def largest_allocation(action):
    """Bytes of the largest single tensor allocation during `action`, temporaries inside operators included."""
    action()  # what is made once and kept does not count
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        action()
    sizes = [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert sizes, "the profiler saw no allocation"
    return max(sizes)


def table():
    return torch.randn(USERS + ITEMS, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_the_measure_sees_what_is_forbidden(graph):
    z = table()
    assert largest_allocation(lambda: z[graph.edge_users].sum().backward()) >= TOO_MANY_BYTES
    assert largest_allocation(lambda: torch.einsum("nd,ne->nde", z[USERS:], z[USERS:])) >= TOO_MANY_BYTES


@pytest.mark.parametrize(
    "weights", [RankWeights(), RankWeights(alpha=0.5), RankWeights.gat(), RankWeights.transformer()]
)
def test_the_layer_makes_nothing_large(graph, weights):
    z = table()
    assert largest_allocation(lambda: rank_attention(graph, z, weights, 0.5).sum().backward()) < TOO_MANY_BYTES


def test_the_full_batch_loss_makes_nothing_large(graph):
    z = table()
    triples = Batch(None, NegativeSampler.of(graph).draw(0, 1), seed=0, step=1).triples(graph)

    def step():
        (bpr(z, triples) + batch_l2(z, triples, 1e-4)).backward()

    assert largest_allocation(step) < TOO_MANY_BYTES
    tracemalloc.start()  # SciPy and NumPy allocate where torch's profiler does not look
    try:
        step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < TOO_MANY_BYTES


def test_whole_training_steps_make_nothing_large(graph):
    settings = RankformerSettings(epochs=2, num_layers=2, embedding_dim=WIDTH, validate_every=1)

    def epochs():
        network = RankformerNetwork(graph.num_users, graph.num_items, settings)
        train(network, graph, settings, FitContext(validate=lambda scorer: {"ndcg@20": 0.5}))

    assert largest_allocation(epochs) < TOO_MANY_BYTES
