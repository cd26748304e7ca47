"""The noisy pass against dense matrix powers with the same noise, and what the noise is."""

from functools import partial

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.noisy_propagation import NoisyLayers, noise_free_propagation, noisy_propagation
from rankformer.layers.rank_attention_reference import count_matrix

ENDS = {end: partial(noisy_propagation, end=end) for end in ("mean", "last")}


def make_graph(counts):
    """The graph of an (n, m) matrix of how often each interaction occurs."""
    users, items = np.nonzero(counts)
    reps = counts[users, items]
    log = Interactions.from_indices(np.repeat(users, reps), np.repeat(items, reps), *counts.shape)
    return BipartiteGraph.from_interactions(log)


@st.composite
def passes(draw):
    """A ragged graph with duplicates and maybe isolated nodes, a shuffled subset of its nodes, K and l*."""
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 8))
    counts = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 3)))
    counts[0] *= draw(st.booleans())
    counts[:, -1] *= draw(st.booleans())
    counts[1, 0] = max(counts[1, 0], 1)
    nodes = draw(st.lists(st.integers(0, n + m - 1), min_size=1, unique=True))
    num_layers = draw(st.integers(1, 4))
    return make_graph(counts), torch.tensor(nodes), num_layers, draw(st.integers(1, num_layers))


@pytest.fixture(scope="module")
def graph():
    """Distinct interactions; user 0 and item 0 have none."""
    counts = np.zeros((9, 7), dtype=np.int64)
    counts[1:, 1:] = np.random.default_rng(0).random((8, 6)) < 0.4
    counts[1, 1] = 1
    return make_graph(counts)


def random_rows(size, seed, d=4):
    return torch.randn(size, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def every_node(graph):
    return torch.arange(graph.num_nodes)


def dense_matrix(graph):
    """T = D^-1/2 A D^-1/2 with 1/sqrt(0) = 0."""
    c, n = count_matrix(graph, torch.float64), graph.num_users
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    a[:n, n:], a[n:, :n] = c, c.T
    shrink = torch.where(a.sum(1) > 0, a.sum(1).rsqrt(), 0.0)
    return shrink[:, None] * a * shrink


def dense_pass(graph, z, layers, nodes, end):
    """The equations with dense matrices and the op's own noise, for autograd."""
    t, outputs, rows = dense_matrix(graph), [], z
    for k in range(1, layers.num_layers + 1):
        product = t @ rows
        if end == "mean" and k == layers.num_layers:
            product = product[nodes]
        moved = product.detach().clone()
        layers.add_noise_(moved, k)
        rows = product + (moved - product).detach()
        outputs.append(rows)
    at_nodes = [*(layer[nodes] for layer in outputs[:-1]), rows if end == "mean" else rows[nodes]]
    final = sum(at_nodes) / layers.num_layers if end == "mean" else rows
    return final, at_nodes[layers.cl_layer - 1], z[nodes]


def values_and_gradient(run, z):
    z = z.clone().requires_grad_()
    outputs = run(z)
    probes = [random_rows(len(output), 90 + number, z.shape[1]) for number, output in enumerate(outputs)]
    total = sum((output * probe).sum() for output, probe in zip(outputs, probes, strict=True))
    return [output.detach() for output in outputs], torch.autograd.grad(total, z)[0]


@pytest.mark.parametrize("size", [0.0, 0.3], ids=["no noise", "noise"])
@pytest.mark.parametrize("end", ENDS)
@settings(max_examples=40, deadline=None)
@given(passes(), st.integers(0, 2**31))
def test_values_and_gradients_are_those_of_the_dense_equations(end, size, drawn, seed):
    graph, nodes, num_layers, cl_layer = drawn
    layers = NoisyLayers(num_layers, cl_layer, size, seed, 7)
    z = random_rows(graph.num_nodes, seed)
    got, slope = values_and_gradient(lambda v: ENDS[end](graph, v, layers, nodes), z)
    wanted, dense_slope = values_and_gradient(lambda v: dense_pass(graph, v, layers, nodes, end), z)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    torch.testing.assert_close(slope, dense_slope, rtol=0, atol=1e-12)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("cl_layer", [1, 2, 3])
def test_gradients_agree_with_finite_differences_while_the_noise_stands_still(graph, end, cl_layer):
    layers = NoisyLayers(3, cl_layer, 0.2, 3, 4)
    z, nodes = random_rows(graph.num_nodes, 1, d=2).requires_grad_(), torch.tensor([11, 2, 5, 0])
    assert torch.autograd.gradcheck(lambda v: ENDS[end](graph, v, layers, nodes), z)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_without_noise_training_and_inference_are_the_means_and_powers_of_the_matrix(graph, num_layers):
    z = random_rows(graph.num_nodes, 2)
    powers = [torch.linalg.matrix_power(dense_matrix(graph), k) @ z for k in range(1, num_layers + 1)]
    for layer in range(1, num_layers + 1):
        mean, view, initial = ENDS["mean"](graph, z, NoisyLayers(num_layers, layer, 0.0), every_node(graph))
        torch.testing.assert_close(mean, sum(powers) / num_layers)
        torch.testing.assert_close(view, powers[layer - 1])
        assert torch.equal(initial, z)
    torch.testing.assert_close(noise_free_propagation(graph, z, num_layers, "mean"), sum(powers) / num_layers)
    torch.testing.assert_close(noise_free_propagation(graph, z, num_layers, "last"), powers[-1])
    last = ENDS["last"](graph, z, NoisyLayers(num_layers, 1, 0.0), every_node(graph))[0]
    assert torch.equal(last, noise_free_propagation(graph, z, num_layers, "last"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_row_moves_by_the_size_of_the_noise_and_stays_in_its_orthant(graph, dtype):
    z = random_rows(graph.num_nodes, 3, d=64).to(dtype)
    clean = noise_free_propagation(graph, z, 1, "last")
    noisy = ENDS["last"](graph, z, NoisyLayers(1, 1, 0.2, 0, 1), every_node(graph))[0]
    touched = graph.degree > 0
    moves = (noisy - clean)[touched]
    torch.testing.assert_close(moves.norm(dim=1), torch.full_like(moves[:, 0], 0.2), rtol=1e-5, atol=0)
    assert torch.equal(noisy.sign(), clean.sign())
    assert (moves * clean[touched].sign() > 0).all()
    assert ((noisy * clean).sum(1)[touched] > 0).all()


def test_nodes_without_interactions_stay_at_zero(graph):
    z, isolated = random_rows(graph.num_nodes, 4), graph.degree == 0
    assert isolated.sum() >= 2
    for end in ENDS.values():
        final, view, _ = end(graph, z, NoisyLayers(2, 1, 0.2, 0, 1), every_node(graph))
        assert not final[isolated].any()
        assert not view[isolated].any()
        assert final[~isolated].all()


def test_one_layer_has_one_view(graph):
    layers = NoisyLayers(1, 1, 0.2, 0, 1)
    final, view, _ = ENDS["mean"](graph, random_rows(graph.num_nodes, 5), layers, every_node(graph))
    assert torch.equal(final, view)


def test_noise_before_it_is_brought_to_length_is_uniform():
    rows = torch.ones(200, 4096, dtype=torch.float64)
    NoisyLayers(1, 1, 1.0, 0, 1).add_noise_(rows, 1)
    rho = rows - 1
    r = (rho / rho.amax(1, keepdim=True)).flatten().sort().values  # the largest of so many numbers is close to 1
    assert (r - torch.linspace(0, 1, len(r), dtype=torch.float64)).abs().max() < 0.005
    between_columns = np.corrcoef(rho[:, :8].T.numpy()) - np.eye(8)
    assert np.abs(between_columns).max() < 0.3


def noise_of(size, seed, step, layer, shape=(5000, 8)):
    rows = torch.ones(shape)
    NoisyLayers(1, 1, size, seed, step).add_noise_(rows, layer)
    return rows


def test_noise_depends_on_seed_step_and_layer_and_on_nothing_else():
    torch.manual_seed(5)
    first = noise_of(0.2, 0, 1, 1)
    torch.manual_seed(6)
    assert torch.equal(noise_of(0.2, 0, 1, 1), first)
    for other in [(1, 1, 1), (0, 2, 1), (0, 1, 2)]:
        assert (noise_of(0.2, *other) != first).float().mean() > 0.99
    assert len(first.unique(dim=0)) == len(first)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2049, 3), (0, 4)])
def test_noise_takes_any_number_of_rows_and_columns(shape):
    noisy = noise_of(0.5, 0, 1, 1, shape)
    torch.testing.assert_close((noisy - 1).norm(dim=1), torch.full((shape[0],), 0.5))


def test_noise_of_size_zero_changes_no_bit_and_a_zero_stays_a_zero():
    assert torch.equal(noise_of(0.0, 0, 1, 1), torch.ones(5000, 8))
    rows = torch.tensor([[0.0, 1.0, -2.0]])
    NoisyLayers(1, 1, 0.1, 0, 1).add_noise_(rows, 1)
    assert rows[0, 0] == 0
    assert rows[0, 1] > 1
    assert rows[0, 2] < -2


@pytest.mark.parametrize("layer", [-1, 0, 3])
def test_a_view_that_is_no_layer_is_refused(layer):
    with pytest.raises(ConfigError, match=rf"cl_layer={layer}: .* one of the layers 1\.\.2"):
        NoisyLayers(2, layer, 0.1, 0, 1)


@pytest.mark.parametrize("end", ENDS)
def test_the_input_is_left_as_it_was_and_nothing_is_kept_for_backward(graph, end):
    z = random_rows(graph.num_nodes, 6).requires_grad_()
    before, kept = z.detach().clone(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        outputs = ENDS[end](graph, z, NoisyLayers(3, 2, 0.1, 0, 1), torch.tensor([1, 3, 12]))
    probes = [torch.ones_like(output) for output in outputs]
    torch.autograd.backward(outputs, probes)
    assert kept == []
    assert torch.equal(z.detach(), before)
    assert all(torch.equal(probe, torch.ones_like(probe)) for probe in probes)


def test_a_mean_at_few_nodes_makes_no_more_full_tables_than_it_has_layers_before_the_last(graph):
    shapes = []

    class Shapes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            shapes.extend((func.__name__, r.shape) for r in (result if isinstance(result, tuple) else (result,)))
            return result

    layers, z, nodes = NoisyLayers(2, 1, 0.0, 0, 1), random_rows(graph.num_nodes, 7), torch.tensor([1, 3])
    with Shapes():
        ENDS["mean"](graph, z, layers, nodes)
    full = [name for name, shape in shapes if shape == z.shape and "detach" not in name]
    assert len(full) == 1
    assert max(shape.numel() for _, shape in shapes) <= max(z.numel(), 2 * graph.num_edges)
