"""What is special to DIFFormer: its layers and what its options reduce them to."""

import itertools

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.simple_attention import simple_attention_reference
from rankformer.models.difformer import DIFFormer, DIFFormerNetwork, DIFFormerSettings

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"embedding_dim": 6, "hidden_dim": 8, "output_dim": 5}


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(random_log())


def network_of(graph, **settings):
    settings = DIFFormerSettings(**{**SMALL, **settings})
    return DIFFormerNetwork(graph.num_users, graph.num_items, settings).double()


def final_rows(network, graph):
    with torch.no_grad():
        return network.propagate(graph)


def states(network, graph):
    """The rows after the input layer and after each layer."""
    with torch.no_grad():
        network.eval()
        rows = [network.input(network.table)]
        for layer in network.layers:
            rows.append(layer(graph, rows[-1], rows[0]))
    return rows


def by_hand(network, graph):
    """The specification's forward pass, with all pairs of nodes written out."""
    settings, weights = network.layers[0].settings, dict(network.named_parameters())

    def linear(name, rows):
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(rows):
        centred = rows - rows.mean(1, keepdim=True)
        return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt() if settings.use_layer_norm else rows

    y = source = norm(linear("input.linear", network.table)).clamp(min=0)
    shape = graph.num_nodes, settings.num_heads, settings.hidden_dim
    for number in range(settings.num_layers):
        q, k = (linear(f"layers.{number}.attention.{part}", y).view(shape) for part in ("query", "key"))
        v = linear(f"layers.{number}.attention.value", y).view(shape) if settings.use_weight else y[:, None]
        kind = "sigmoid" if settings.kernel == "sigmoid" else "difformer"
        reached = simple_attention_reference(kind, q, k, v, settings.norm)
        near = torch.stack([self_loop_propagation(graph, head) for head in v.unbind(1)], dim=1)
        g = settings.graph_weight
        step = ((1 - g) * reached + g * near if g is not None else reached + near) if settings.use_graph else reached
        step = step.mean(1) + (source if settings.use_source else 0)
        y = norm(settings.update_weight * step + (1 - settings.update_weight) * y if settings.use_residual else step)
    return linear("output", y)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_layers": 3, "update_weight": 0.2, "graph_weight": 0.8},
        {"num_heads": 3, "use_weight": True, "norm": "row"},
        {"num_heads": 2, "kernel": "sigmoid"},
        {"kernel": "sigmoid", "norm": "row", "use_source": True},
        {"use_graph": False, "use_residual": False, "use_layer_norm": False},
    ],
    ids=str,
)
def test_the_network_is_the_one_of_the_paper(graph, settings):
    network = network_of(graph, **settings)
    torch.testing.assert_close(final_rows(network, graph), by_hand(network, graph).detach(), rtol=0, atol=1e-12)


def test_the_defaults_are_those_that_the_search_starts_from():
    settings = DIFFormerSettings()
    assert (settings.num_layers, settings.num_heads, settings.update_weight) == (2, 1, 0.5)
    assert settings.graph_weight is None
    assert (settings.kernel, settings.norm, settings.use_weight) == ("simple", "frobenius", False)
    assert settings.use_graph
    assert settings.use_residual
    assert settings.use_layer_norm
    assert not settings.use_source


def test_steps_of_size_zero_leave_the_input_and_forget_the_edges(graph):
    network = network_of(graph, update_weight=0.0, use_layer_norm=False, num_layers=3)
    first, *_, last = states(network, graph)
    torch.testing.assert_close(last, first)
    other = BipartiteGraph.from_interactions(random_log(seed=5))
    torch.testing.assert_close(final_rows(network, other), final_rows(network, graph))


def test_the_edges_matter_otherwise(graph):
    network, other = network_of(graph), BipartiteGraph.from_interactions(random_log(seed=5))
    assert (final_rows(network, other) - final_rows(network, graph)).abs().max() > 0.01


def test_the_order_of_users_and_items_does_not_matter():
    log, order = random_log(), np.random.default_rng(3)
    users, items = order.permutation(log.num_users), order.permutation(log.num_items)
    moved = Interactions.from_indices(users[log.users], items[log.items], log.num_users, log.num_items)
    graph, moved_graph = (BipartiteGraph.from_interactions(part) for part in (log, moved))
    position = torch.from_numpy(np.concatenate([users, items + log.num_users]))
    network, moved_network = (network_of(graph, num_heads=2, use_weight=True) for _ in range(2))
    with torch.no_grad():
        moved_network.table[position] = network.table
    torch.testing.assert_close(final_rows(moved_network, moved_graph)[position], final_rows(network, graph))


def test_the_graph_alone_at_full_steps_is_a_power_of_the_propagation(graph):
    network = network_of(graph, graph_weight=1.0, update_weight=1.0, use_layer_norm=False, num_layers=3)
    first, *_, last = states(network, graph)
    matrix = self_loop_propagation(graph, torch.eye(graph.num_nodes, dtype=torch.float64))
    torch.testing.assert_close(last, torch.linalg.matrix_power(matrix, 3) @ first)


def test_equal_weights_are_half_of_the_sum(graph):
    rows = torch.randn(graph.num_nodes, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        half, whole = (
            network_of(graph, graph_weight=weight, num_heads=2, use_weight=True).layers[0].diffuse(graph, rows)
            for weight in (0.5, None)
        )
    torch.testing.assert_close(half, whole / 2)


@pytest.mark.parametrize("kernel", ["simple", "sigmoid"])
@pytest.mark.parametrize("update_weight", [0.1, 0.5])
def test_diffusion_never_spreads_the_nodes(graph, kernel, update_weight):
    network = network_of(
        graph, kernel=kernel, update_weight=update_weight, use_graph=False, use_layer_norm=False, num_layers=5
    )
    spreads = [(rows - rows.mean(0)).square().sum().item() for rows in states(network, graph)]
    assert spreads[0] > 0.1
    assert all(later < earlier for earlier, later in itertools.pairwise(spreads))


def test_all_pairs_of_too_many_nodes_are_refused():
    settings = DIFFormerSettings(kernel="sigmoid", embedding_dim=2)
    with pytest.raises(ConfigError, match=r"all pairs of 4097 nodes .* at most 4096; use kernel='simple'"):
        DIFFormerNetwork(4000, 97, settings)
    assert DIFFormerNetwork(4000, 96, settings).table.shape == (4096, 2)


@pytest.mark.parametrize(
    "settings", [{"update_weight": 1.5}, {"graph_weight": 2}, {"graph_weight": -1}, {"num_heads": 0}, {"dropout": 1.0}]
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        DIFFormer(**settings)


def test_one_user_and_one_item_are_enough():
    model = DIFFormer(**SMALL, epochs=3).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
