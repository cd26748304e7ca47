"""What is kept for the backward pass: how much it is, and what it does to the gradients."""

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from rankformer.data.interactions import Interactions
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.models.rankformer import RankformerNetwork, RankformerSettings
from rankformer.training.activations import apply_layers, least_units, segment_sizes

pytestmark = pytest.mark.usefixtures("one_thread")

USERS, ITEMS, EDGES, WIDTH = 900, 700, 4_000, 32
ROWS = 4 * (USERS + ITEMS) * WIDTH  # bytes of one layer's output


@pytest.fixture(scope="module")
def graph():
    pairs = np.random.default_rng(0).choice(USERS * ITEMS, EDGES, replace=False)
    return BipartiteGraph.from_interactions(Interactions.from_indices(pairs // ITEMS, pairs % ITEMS, USERS, ITEMS))


def network(graph, keep, layers):
    settings = RankformerSettings(embedding_dim=WIDTH, num_layers=layers, activations=keep, l2=1e-4)
    return RankformerNetwork(graph.num_users, graph.num_items, settings)


def gradient(graph, keep, layers, batch_size=None):
    model = network(graph, keep, layers)
    edges = None if batch_size is None else torch.arange(0, EDGES, EDGES // batch_size)
    loss = model.loss(graph, Batch(edges, NegativeSampler.of(graph).draw(0, 1, edges), seed=0, step=1))
    loss.backward()
    return loss.item(), model.table.grad


def peak_of_step(graph, keep, layers):
    """Most bytes of tensors alive at once in one forward and backward pass."""
    model, batch = network(graph, keep, layers), Batch(None, NegativeSampler.of(graph).draw(0, 1), 0, 1)
    live = top = 0
    for size in allocations(lambda: model.loss(graph, batch).backward()):
        live += size
        top = max(top, live)
    return top


def allocations(action):
    """Bytes of every allocation (positive) and release (negative) during `action`, in order."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = action()  # held until the profile ends
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    del kept
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 10, 11, 30])
def test_segments_cover_the_stack_within_the_least_peak(count):
    sizes = segment_sizes(count)
    assert sum(sizes) == count
    assert min(sizes) >= 1
    peak = least_units(count)
    assert max(position + size for position, size in enumerate(sizes)) <= peak
    assert (peak - 1) * peak // 2 < count <= peak * (peak + 1) // 2


def test_segments_of_five_functions():
    assert segment_sizes(5) == [3, 2]  # the default: warm-up and four layers, three outputs at once in place of five


@pytest.mark.parametrize("layers", [0, 1, 2, 4, 7])
@pytest.mark.parametrize("batch_size", [None, 50], ids=["full batch", "mini-batch"])
def test_recomputing_gives_the_same_bits(graph, layers, batch_size):
    loss, grad = gradient(graph, "float32", layers, batch_size)
    other_loss, other_grad = gradient(graph, "recompute", layers, batch_size)
    assert loss == other_loss
    assert torch.equal(grad, other_grad)


@pytest.mark.parametrize("layers", [1, 4, 7])
@pytest.mark.parametrize("batch_size", [None, 50], ids=["full batch", "mini-batch"])
def test_rounding_changes_gradients_by_less_than_a_bfloat16_step(graph, layers, batch_size):
    loss, grad = gradient(graph, "float32", layers, batch_size)
    other_loss, other_grad = gradient(graph, "bfloat16", layers, batch_size)
    assert loss == other_loss  # the forward pass is untouched
    assert not torch.equal(grad, other_grad)
    assert (other_grad - grad).norm() < 2**-8 * grad.norm()


def test_the_peak_falls(graph):
    plain, rounded, again = (peak_of_step(graph, keep, 8) for keep in ("float32", "bfloat16", "recompute"))
    # 9 outputs; 9 halves and two of them unpacked; 4 outputs, and edge values of 4 layers in place of 8.
    assert plain - rounded > 2 * ROWS
    assert plain - again > 5 * ROWS


def test_recomputing_lowers_the_peak_at_the_default_depth(graph):
    assert peak_of_step(graph, "float32", 4) - peak_of_step(graph, "recompute", 4) > 2 * ROWS


def test_each_output_is_rounded_once_and_not_kept_beside_its_copy(graph):
    layers = 6
    plain = sum(allocations(lambda: network(graph, "float32", layers).propagate(graph)))
    rounded = sum(allocations(lambda: network(graph, "bfloat16", layers).propagate(graph)))
    # Seven outputs become seven halves, and the last one lives on as it is: it is the result.
    assert plain - rounded == pytest.approx(7 * ROWS / 2 - ROWS, abs=ROWS / 10)


@pytest.mark.parametrize("keep", ["bfloat16", "recompute"])
def test_double_precision_and_predictions_are_left_alone(graph, keep):
    exact = network(graph, "float32", 3).double()
    other = network(graph, keep, 3).double()
    for model in (exact, other):
        model.propagate(graph).square().sum().backward()
    assert torch.equal(exact.table.grad, other.table.grad)
    with torch.no_grad():
        assert torch.equal(exact.propagate(graph), other.propagate(graph))


def test_a_freed_address_is_not_taken_for_a_kept_tensor():
    """Outputs are freed as the stack continues, so that later ones lie where earlier ones did."""
    start = torch.randn(512, 64, requires_grad=True)
    layers = [lambda x, k=k: (x * (1 + 0.1 * k)).sin() for k in range(12)]
    apply_layers(layers, start).sum().backward()
    exact, start.grad = start.grad, None
    apply_layers(layers, start, "bfloat16").sum().backward()
    assert (start.grad - exact).norm() < 0.02 * exact.norm()
