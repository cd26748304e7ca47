"""Positions: distances against a plain search, the closed form against the loop over anchors, both self features."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.anchor_positions import Anchors, PositionLayer, distances, draw_anchors, window_means


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def path_graph(users):
    """user 0 - item 0 - user 1 - item 1 - ..., with the position of each node on it."""
    steps = [(user, user) for user in range(users)] + [(user + 1, user) for user in range(users - 1)]
    pairs = np.array(steps)
    graph = BipartiteGraph.from_interactions(Interactions.from_indices(pairs[:, 0], pairs[:, 1], users, users))
    return graph, np.concatenate([2 * np.arange(users), 2 * np.arange(users) + 1])


@st.composite
def graphs(draw):
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), min_size=1, max_size=15))
    users, items = np.array(pairs).T
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, items, n, m))


def plain_search(graph, start):
    """Breadth-first search as the textbook has it."""
    found, level, steps = {start: 0}, [start], 0
    ptr, neighbours = graph.ptr.tolist(), graph.neighbours.tolist()
    while level:
        steps += 1
        level = list(dict.fromkeys(w for v in level for w in neighbours[ptr[v] : ptr[v + 1]] if w not in found))
        found |= dict.fromkeys(level, steps)
    return [found.get(node, math.inf) for node in range(graph.num_nodes)]


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_distances_are_those_of_a_plain_search(graph):
    nodes = np.arange(graph.num_nodes)
    assert distances(graph, nodes).tolist() == [plain_search(graph, node) for node in nodes]


@pytest.mark.parametrize("users", [1, 5, 40])
def test_with_all_nodes_of_a_path_as_anchors_nearness_is_known(users):
    graph, position = path_graph(users)
    anchors = draw_anchors(graph, 10_000, seeded())
    assert sorted(anchors.nodes.tolist()) == list(range(2 * users))
    apart = np.abs(position[:, None] - position[anchors.nodes.numpy()])
    torch.testing.assert_close(anchors.nearness.double(), torch.from_numpy(1 / (apart + 1.0)), rtol=0, atol=1e-6)


def test_what_cannot_be_reached_has_no_nearness():
    graph = BipartiteGraph.from_interactions(Interactions.from_indices([0, 1], [0, 1], 3, 2))
    anchors = draw_anchors(graph, 5, seeded())
    nearness = torch.zeros(5, 5)
    nearness[:, anchors.nodes] = anchors.nearness
    expected = torch.eye(5)
    for user, item in ((0, 3), (1, 4)):
        expected[user, item] = expected[item, user] = 0.5
    assert torch.equal(nearness, expected)


def test_anchors_are_distinct_and_decided_by_the_generator():
    graph, _ = path_graph(30)
    one, same, other = (draw_anchors(graph, 8, seeded(seed)).nodes for seed in (0, 0, 1))
    assert len(set(one.tolist())) == 8
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def slots(rows, self_feature, count):
    """x_v for every slot (v, j) of the official N x a tensor, (N, a, d)."""
    size = len(rows)
    if self_feature == "correct":
        return rows[:, None].expand(size, count, -1)
    numbers = torch.tensor([[(v * count + j) % size for j in range(count)] for v in range(size)])
    return rows[numbers]


@pytest.mark.parametrize("self_feature", ["correct", "official"])
@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_closed_form_is_the_mean_over_the_anchors(self_feature, count):
    graph, _ = path_graph(6)
    anchors = draw_anchors(graph, count, seeded())
    anchors = Anchors(anchors.nodes, anchors.nearness.double())
    layer = PositionLayer(3, seeded(), self_feature).double()
    rows = torch.randn(graph.num_nodes, 3, dtype=torch.float64, generator=seeded(1))
    from_anchors = anchors.nearness[:, :, None] * rows[anchors.nodes]  # (N, a, d)
    both = torch.cat([from_anchors, slots(rows, self_feature, count)], dim=2)
    torch.testing.assert_close(layer(rows, anchors), layer.linear(both).mean(1))


def test_both_self_features_agree_on_equal_rows_and_only_there():
    graph, _ = path_graph(6)
    anchors = draw_anchors(graph, 4, seeded())
    correct, official = (PositionLayer(3, seeded(), feature) for feature in ("correct", "official"))
    equal = torch.ones(12, 3)
    torch.testing.assert_close(correct(equal, anchors), official(equal, anchors))
    rows = torch.randn(12, 3, generator=seeded())
    assert not torch.allclose(correct(rows, anchors), official(rows, anchors))


@pytest.mark.parametrize(("size", "length"), [(5, 3), (6, 3), (4, 7), (1, 2)])
def test_window_means_and_their_gradient(size, length):
    rows = torch.randn(size, 2, dtype=torch.float64, generator=seeded(), requires_grad=True)
    torch.testing.assert_close(window_means(rows, length), slots(rows, "official", length).mean(1))
    assert torch.autograd.gradcheck(lambda x: window_means(x, length), rows)
