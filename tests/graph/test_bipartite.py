"""The graph holds every interaction once in user order and once in item order."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.repeated_logs import weighted_and_repeated

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.graph.bipartite import BipartiteGraph


@st.composite
def logs(draw):
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), min_size=1, max_size=60))
    users, items = zip(*pairs, strict=True)
    return Interactions.from_indices(users, items, n, m)


@settings(max_examples=60, deadline=None)
@given(logs())
def test_both_orders_hold_the_interactions_of_the_log_and_agree(data):
    graph = BipartiteGraph.from_interactions(data)
    n, size = data.num_users, len(data)
    wanted = sorted(zip(data.users.tolist(), data.items.tolist(), strict=True))
    assert list(zip(graph.edge_users.tolist(), (graph.edge_items - n).tolist(), strict=True)) == wanted
    by_item = list(zip(graph.owners[size:].tolist(), graph.neighbours[size:].tolist(), strict=True))
    assert by_item == sorted((n + item, user) for user, item in wanted)
    edges = graph.item_order.long()
    assert torch.equal(graph.edge_users[edges], graph.neighbours[size:])
    assert torch.equal(graph.edge_items[edges], graph.owners[size:])


@settings(max_examples=60, deadline=None)
@given(logs())
def test_ptr_and_degree_count_parallel_edges_and_isolated_nodes(data):
    graph = BipartiteGraph.from_interactions(data)
    counts = np.concatenate(
        [np.bincount(data.users, minlength=data.num_users), np.bincount(data.items, minlength=data.num_items)]
    )
    assert graph.degree.tolist() == counts.tolist()
    assert graph.ptr.tolist() == [0, *np.cumsum(counts).tolist()]
    for node in range(graph.num_nodes):
        assert set(graph.owners[graph.ptr[node] : graph.ptr[node + 1]].tolist()) <= {node}


def test_an_empty_log_is_refused_by_name():
    with pytest.raises(DataError, match="nothing here has no interaction"):
        BipartiteGraph.from_interactions(Interactions.from_indices([], [], 3, 3, name="nothing here"))


@pytest.mark.parametrize(
    ("users", "items", "complaint"),
    [
        ([], [], "as many users as items, at least one"),
        ([0, 1], [0], "as many users as items"),
        ([0, 3], [0, 0], r"user indices must lie in 0\.\.2 and item indices in 0\.\.3"),
        ([0, 1], [0, 4], "must lie in"),
        ([0, -1], [0, 0], "must lie in"),
    ],
)
def test_pairs_that_make_no_graph_are_rejected(users, items, complaint):
    with pytest.raises(DataError, match=complaint):
        BipartiteGraph.from_pairs(users, items, 3, 4)


def test_the_interaction_matrix_has_ones_or_counts_and_the_distinct_graph_no_parallel_edges():
    graph = BipartiteGraph.from_pairs([0, 2, 0, 0], [1, 3, 1, 0], 3, 4, dtype=torch.float64)
    counts = np.array([[1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
    assert graph.interaction_matrix(count_duplicates=True).toarray().tolist() == counts.tolist()
    assert graph.interaction_matrix().toarray().tolist() == counts.clip(max=1).tolist()
    distinct = graph.distinct()
    assert (distinct.num_users, distinct.num_items, distinct.num_edges) == (3, 4, 3)
    assert distinct.interaction_matrix(count_duplicates=True).toarray().tolist() == counts.clip(max=1).tolist()
    assert distinct.pattern.dtype == torch.float64


def test_integer_weights_are_parallel_edges():
    weighted, repeated = (BipartiteGraph.from_interactions(log, weighted=True) for log in weighted_and_repeated())
    assert weighted.degree.tolist() == repeated.degree.tolist()
    assert weighted.num_edges < repeated.num_edges
    x, y = (graph.interaction_matrix(count_duplicates=True).toarray() for graph in (weighted, repeated))
    assert x.tolist() == y.tolist()
    assert repeated.weights is None


def test_weights_follow_their_edges_in_both_orders():
    users, items, weights = [2, 0, 2, 0, 0], [1, 3, 0, 3, 1], [5, 0.25, 7, 2, 0.5]
    graph = BipartiteGraph.from_pairs(users, items, 3, 4, weights=weights)
    pairs = zip(graph.owners.tolist(), graph.neighbours.tolist(), graph.weights.tolist(), strict=True)
    edges = [(u, 3 + i, w) for u, i, w in zip(users, items, weights, strict=True)]
    assert sorted(pairs) == sorted(edges + [(i, u, w) for u, i, w in edges])
    assert graph.degree.tolist() == [2.75, 0, 12, 7, 5.5, 0, 2.25]
    assert graph.divisor.tolist() == [2.75, 1, 12, 7, 5.5, 1, 2.25]
    x = graph.interaction_matrix().toarray()
    np.testing.assert_allclose(x / x[0, 3], [[0, 0.25, 0, 1], [0] * 4, [3.5, 2.5, 0, 0]])
    assert (x**2).sum() == pytest.approx(4)  # that of ones
    assert graph.interaction_matrix(count_duplicates=True).toarray()[0].tolist() == [0, 0.5, 0, 2.25]
    np.testing.assert_allclose(graph.distinct().edge_weights, x[x > 0])
    assert float(graph.loss_weights.mean()) == 1
    plain, same = graph.unweighted(), BipartiteGraph.from_pairs(users, items, 3, 4)
    assert plain.weights is None
    assert plain.degree.tolist() == same.degree.tolist()


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_that_cannot_count_is_refused_where_weights_count(weight):
    log = Interactions.from_indices([0, 1], [0, 1], weights=np.array([3, weight], np.float32), name="ratings")
    assert BipartiteGraph.from_interactions(log).weights is None
    with pytest.raises(
        DataError, match=rf"ratings has 1 interactions of weight 0 or less, the least {weight}; .*--min-w"
    ):
        BipartiteGraph.from_interactions(log, weighted=True)
