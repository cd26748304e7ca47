"""Propagation with self-loops against the dense matrix, and its invariants."""

import gc

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import graph_convolution as module
from rankformer.layers.graph_convolution import self_loop_propagation
from rankformer.layers.rank_attention_reference import count_matrix


def make_graph(counts):
    """The graph of an (n, m) matrix of how often each pair occurs."""
    users, items = np.nonzero(counts)
    reps = counts[users, items]
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(np.repeat(users, reps), np.repeat(items, reps), *counts.shape)
    )


@st.composite
def graphs(draw):
    """Ragged graphs with repeats; user 0 and the last item may be isolated."""
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 8))
    counts = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 3)))
    counts[0] *= draw(st.booleans())
    counts[:, -1] *= draw(st.booleans())
    counts[1, 0] = max(counts[1, 0], 1)
    return make_graph(counts)


def random_rows(graph, seed, d=4):
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense_matrix(graph):
    """D^-1/2 (A + I) D^-1/2."""
    c, n = count_matrix(graph, torch.float64), graph.num_users
    a = torch.eye(graph.num_nodes, dtype=torch.float64)
    a[:n, n:], a[n:, :n] = c, c.T
    shrink = a.sum(1).rsqrt()
    return shrink[:, None] * a * shrink


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 2**31))
def test_values_and_gradients_are_those_of_the_dense_matrix(graph, seed):
    rows, probe = random_rows(graph, seed).requires_grad_(), random_rows(graph, seed + 1)
    out, wanted = self_loop_propagation(graph, rows), dense_matrix(graph) @ rows
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    got, dense = (torch.autograd.grad((values * probe).sum(), rows)[0] for values in (out, wanted))
    torch.testing.assert_close(got, dense, rtol=0, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_it_is_symmetric_with_eigenvalues_up_to_one_which_the_root_of_the_degree_reaches(graph):
    matrix = self_loop_propagation(graph, torch.eye(graph.num_nodes, dtype=torch.float64))
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-14)
    values = torch.linalg.eigvalsh(matrix)
    assert values[0].item() > -1
    assert values[-1].item() == pytest.approx(1, abs=1e-12)
    root = (graph.degree + 1).sqrt()[:, None]
    torch.testing.assert_close(matrix @ root, root, rtol=1e-13, atol=0)


def test_a_node_without_neighbours_keeps_its_row():
    graph = make_graph(np.array([[0, 0], [1, 0]]))
    rows = random_rows(graph, 0)
    out = self_loop_propagation(graph, rows)
    assert torch.equal(out[[0, 3]], rows[[0, 3]])
    torch.testing.assert_close(out[1], (rows[1] + rows[2]) / 2)


def test_rows_in_any_layout_and_type_give_the_same():
    graph = make_graph(np.array([[1, 0, 2], [1, 1, 0]]))
    rows = random_rows(graph, 1)
    wanted = self_loop_propagation(graph, rows)
    torch.testing.assert_close(self_loop_propagation(graph, rows.T.contiguous().T), wanted)
    single = self_loop_propagation(graph, rows.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), wanted, rtol=0, atol=1e-6)


def test_the_weights_are_built_once_and_dropped_with_the_graph():
    graph = make_graph(np.array([[1, 0], [1, 1]]))
    self_loop_propagation(graph, random_rows(graph, 2))
    kept = module._weights_of[graph]
    self_loop_propagation(graph, random_rows(graph, 3))
    assert module._weights_of[graph] is kept
    before = len(module._weights_of)
    del graph
    gc.collect()
    assert len(module._weights_of) < before
