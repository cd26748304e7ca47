"""LightGCN's propagation against dense matrix powers, that with self-loops against its matrix, and invariants."""

import gc

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.repeated_logs import weighted_and_repeated

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import light_propagation as module
from rankformer.layers.light_propagation import light_propagation, neighbour_means, self_loop_propagation
from rankformer.layers.rank_attention_reference import count_matrix


def make_graph(counts):
    """The graph of an (n, m) matrix of how often each interaction occurs."""
    users, items = np.nonzero(counts)
    reps = counts[users, items]
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(np.repeat(users, reps), np.repeat(items, reps), *counts.shape)
    )


@st.composite
def graphs(draw):
    """Ragged graphs with duplicates; user 0 and the last item may be isolated."""
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 8))
    counts = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 3)))
    counts[0] *= draw(st.booleans())
    counts[:, -1] *= draw(st.booleans())
    counts[1, 0] = max(counts[1, 0], 1)
    return make_graph(counts)


@pytest.fixture(scope="module")
def graph():
    """Distinct interactions; user 0 and item 0 have none."""
    counts = np.zeros((9, 7), dtype=np.int64)
    counts[1:, 1:] = np.random.default_rng(0).random((8, 6)) < 0.4
    counts[1, 1] = 1
    return make_graph(counts)


def random_rows(graph, seed, d=4):
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense_matrix(graph):
    """T = D^-1/2 A D^-1/2 with 1/sqrt(0) = 0."""
    c, n = count_matrix(graph, torch.float64), graph.num_users
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    a[:n, n:], a[n:, :n] = c, c.T
    shrink = torch.where(a.sum(1) > 0, a.sum(1).rsqrt(), 0.0)
    return shrink[:, None] * a * shrink


def dense_mean(graph, z, num_layers):
    t = dense_matrix(graph)
    return sum(torch.linalg.matrix_power(t, k) @ z for k in range(num_layers + 1)) / (num_layers + 1)


@settings(max_examples=80, deadline=None)
@given(graphs(), st.integers(0, 2**31), st.integers(0, 5))
def test_values_and_gradients_are_those_of_dense_matrix_powers(graph, seed, num_layers):
    z, probe = random_rows(graph, seed).requires_grad_(), random_rows(graph, seed + 1)
    out, wanted = light_propagation(graph, z, num_layers), dense_mean(graph, z, num_layers)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    got, dense = (torch.autograd.grad((values * probe).sum(), z)[0] for values in (out, wanted))
    torch.testing.assert_close(got, dense, rtol=0, atol=1e-12)


def test_no_layers_change_nothing(graph):
    z = random_rows(graph, 1)
    assert torch.equal(light_propagation(graph, z, 0), z)


@settings(max_examples=30, deadline=None)
@given(graphs(), st.integers(1, 5))
def test_the_root_of_the_degree_is_a_fixed_point_where_there_is_an_edge(graph, num_layers):
    root = graph.degree.sqrt()[:, None]
    torch.testing.assert_close(light_propagation(graph, root, num_layers), root, rtol=1e-13, atol=0)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_one_layer_has_eigenvalues_from_zero_to_one_and_reaches_both(graph):
    mean = light_propagation(graph, torch.eye(graph.num_nodes, dtype=torch.float64), 1)  # (1 + T) / 2
    values = torch.linalg.eigvalsh(mean)
    assert values[0].item() == pytest.approx(0, abs=1e-12)
    assert values[-1].item() == pytest.approx(1, abs=1e-12)


def test_one_layer_reaches_the_other_side_and_two_come_back(graph):
    n, z = graph.num_users, random_rows(graph, 2)
    only_users, only_items = z.clone(), z.clone()
    only_users[n:], only_items[:n] = 0, 0
    # The K-th power alone: (K + 1) mean_K - K mean_{K-1}.
    first = 2 * light_propagation(graph, only_users, 1) - only_users
    second = 3 * light_propagation(graph, only_items, 2) - 2 * light_propagation(graph, only_items, 1)
    torch.testing.assert_close(first[:n], torch.zeros_like(first[:n]), rtol=0, atol=1e-14)
    torch.testing.assert_close(second[:n], torch.zeros_like(second[:n]), rtol=0, atol=1e-14)
    assert first[n:].abs().max() > 0.1
    assert second[n:].abs().max() > 0.1


@pytest.mark.parametrize("num_layers", [1, 2, 3, 7])
def test_a_node_without_neighbours_is_only_shrunk(graph, num_layers):
    z = random_rows(graph, 3)
    isolated = (graph.degree == 0).nonzero().squeeze(1)
    assert {0, graph.num_users} <= set(isolated.tolist())
    out = light_propagation(graph, z, num_layers)
    torch.testing.assert_close(out[isolated], z[isolated] / (num_layers + 1))


def test_it_is_its_own_adjoint(graph):
    left, right = random_rows(graph, 4), random_rows(graph, 5)
    one, other = (light_propagation(graph, left, 3) * right).sum(), (left * light_propagation(graph, right, 3)).sum()
    torch.testing.assert_close(one, other)


def test_it_is_linear(graph):
    left, right = random_rows(graph, 6), random_rows(graph, 7)
    together = light_propagation(graph, 2 * left - 3 * right, 3)
    apart = 2 * light_propagation(graph, left, 3) - 3 * light_propagation(graph, right, 3)
    torch.testing.assert_close(together, apart)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_gradients_agree_with_finite_differences(graph, num_layers):
    z = random_rows(graph, 8, d=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: light_propagation(graph, v, num_layers), z)
    assert torch.autograd.gradgradcheck(lambda v: light_propagation(graph, v, num_layers).pow(2), z)


def test_renumbering_users_and_items_renumbers_the_output(graph):
    counts = count_matrix(graph, torch.float64)
    new_user = torch.randperm(graph.num_users, generator=torch.Generator().manual_seed(1))
    new_item = torch.randperm(graph.num_items, generator=torch.Generator().manual_seed(2))
    moved = torch.empty_like(counts)
    moved[new_user[:, None], new_item] = counts
    new_node = torch.cat([new_user, new_item + graph.num_users])
    z = random_rows(graph, 9)
    moved_z = torch.empty_like(z)
    moved_z[new_node] = z
    out = light_propagation(make_graph(moved.long().numpy()), moved_z, 3)
    torch.testing.assert_close(out[new_node], light_propagation(graph, z, 3))


@settings(max_examples=30, deadline=None)
@given(graphs(), st.integers(0, 2**31), st.integers(0, 5))
def test_rows_as_a_whole_never_grow(graph, seed, num_layers):
    z = random_rows(graph, seed)
    assert light_propagation(graph, z, num_layers).norm() <= z.norm() * (1 + 1e-12)


def test_duplicates_are_parallel_edges():
    once, twice = make_graph(np.array([[1, 1]])), make_graph(np.array([[2, 1]]))
    z = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    roots = torch.tensor([1 / 2, 2 / 6**0.5 / 2, 1 / 3**0.5 / 2], dtype=torch.float64)
    torch.testing.assert_close(light_propagation(twice, z, 1).flatten(), roots)
    assert not torch.allclose(light_propagation(once, z, 1), light_propagation(twice, z, 1))


def test_the_input_is_left_as_it_was_and_nothing_is_kept_for_backward(graph):
    z = random_rows(graph, 10).requires_grad_()
    before = z.detach().clone()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        out = light_propagation(graph, z, 3)
    out.sum().backward()  # a gradient of ones, stretched from a single number
    assert kept == []
    assert torch.equal(z.detach(), before)
    torch.testing.assert_close(z.grad, light_propagation(graph, torch.ones_like(before), 3))


def test_each_type_of_number_gets_weights_of_its_own(graph):
    z = random_rows(graph, 11)
    exact, rounded = light_propagation(graph, z, 3), light_propagation(graph, z.float(), 3)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, rtol=1e-5, atol=1e-6)
    assert torch.equal(light_propagation(graph, z, 3), exact)


def test_weights_are_built_once_and_go_with_their_graph():
    graph = make_graph(np.eye(3, dtype=np.int64))
    z = random_rows(graph, 12)
    light_propagation(graph, z, 1)
    weights = module._weights_of[graph][torch.float64, 0]
    light_propagation(graph, z, 2)
    assert module._weights_of[graph][torch.float64, 0] is weights
    gc.collect()
    before = len(module._weights_of)
    del graph
    gc.collect()
    assert len(module._weights_of) == before - 1


def loop_matrix(graph):
    """D^-1/2 (A + I) D^-1/2."""
    c, n = count_matrix(graph, torch.float64), graph.num_users
    a = torch.eye(graph.num_nodes, dtype=torch.float64)
    a[:n, n:], a[n:, :n] = c, c.T
    shrink = a.sum(1).rsqrt()
    return shrink[:, None] * a * shrink


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**31))
def test_with_loops_values_and_gradients_are_those_of_the_dense_matrix(graph, seed):
    rows, probe = random_rows(graph, seed).requires_grad_(), random_rows(graph, seed + 1)
    out, wanted = self_loop_propagation(graph, rows), loop_matrix(graph) @ rows
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    got, dense = (torch.autograd.grad((values * probe).sum(), rows)[0] for values in (out, wanted))
    torch.testing.assert_close(got, dense, rtol=0, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_with_loops_it_is_symmetric_with_eigenvalues_up_to_one_which_the_root_of_the_degree_reaches(graph):
    matrix = self_loop_propagation(graph, torch.eye(graph.num_nodes, dtype=torch.float64))
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-14)
    values = torch.linalg.eigvalsh(matrix)
    assert values[0].item() > -1
    assert values[-1].item() == pytest.approx(1, abs=1e-12)
    root = (graph.degree + 1).sqrt()[:, None]
    torch.testing.assert_close(matrix @ root, root, rtol=1e-13, atol=0)


def test_with_loops_a_node_without_neighbours_keeps_its_row():
    graph = make_graph(np.array([[0, 0], [1, 0]]))
    rows = random_rows(graph, 0)
    out = self_loop_propagation(graph, rows)
    assert torch.equal(out[[0, 3]], rows[[0, 3]])
    torch.testing.assert_close(out[1], (rows[1] + rows[2]) / 2)


def test_with_loops_rows_in_any_layout_and_type_give_the_same():
    graph = make_graph(np.array([[1, 0, 2], [1, 1, 0]]))
    rows = random_rows(graph, 1)
    wanted = self_loop_propagation(graph, rows)
    torch.testing.assert_close(self_loop_propagation(graph, rows.T.contiguous().T), wanted)
    single = self_loop_propagation(graph, rows.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), wanted, rtol=0, atol=1e-6)


def test_with_loops_weights_are_built_once_and_go_with_their_graph():
    graph = make_graph(np.array([[1, 0], [1, 1]]))
    self_loop_propagation(graph, random_rows(graph, 2))
    kept = module._weights_of[graph][torch.float64, 1]
    self_loop_propagation(graph, random_rows(graph, 3))
    assert module._weights_of[graph][torch.float64, 1] is kept
    before = len(module._weights_of)
    del graph
    gc.collect()
    assert len(module._weights_of) < before


OPERATORS = {
    "means": neighbour_means,
    "light": lambda graph, z: light_propagation(graph, z, 3),
    "loops": self_loop_propagation,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_integer_weights_are_parallel_edges_in_values_and_gradients(name):
    weighted, repeated = (BipartiteGraph.from_interactions(log, weighted=True) for log in weighted_and_repeated())
    assert weighted.weights is not None
    outcomes = []
    for graph in (weighted, repeated):
        z = random_rows(graph, 3).requires_grad_()
        out = OPERATORS[name](graph, z)
        (out * random_rows(graph, 4)).sum().backward()
        outcomes.append((out.detach(), z.grad))
    for got, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-7)


def test_weights_below_one_still_make_means():
    graph = BipartiteGraph.from_pairs([0, 0], [0, 1], 1, 2, weights=[0.001, 0.003])
    z = torch.tensor([[0.0], [4.0], [8.0]])
    torch.testing.assert_close(neighbour_means(graph, z)[0], torch.tensor([7.0]))
    torch.testing.assert_close(light_propagation(graph, z, 1), 0.5 * (z + dense_matrix(graph).float() @ z))
