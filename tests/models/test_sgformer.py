"""What is special to SGFormer: its two branches and what its options reduce them to."""

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.light_propagation import self_loop_propagation
from rankformer.layers.simple_attention import simple_attention_reference
from rankformer.models.sgformer import SGFormer, SGFormerNetwork, SGFormerSettings

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"embedding_dim": 6, "hidden_dim": 8, "output_dim": 5}


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(random_log())


def network_of(graph, **settings):
    settings = SGFormerSettings(**{**SMALL, **settings})
    return SGFormerNetwork(graph.num_users, graph.num_items, settings).double()


def final_rows(network, graph):
    with torch.no_grad():
        return network.propagate(graph)


def one_step(network, graph):
    batch = Batch(None, NegativeSampler.of(graph).draw(0, 1, None), seed=0, step=1)
    return network.loss(graph, batch)


def by_hand(network, graph, settings):
    """The specification's forward pass in training mode, with all pairs of nodes written out."""
    weights = dict(network.named_parameters())

    def linear(name, rows):
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(rows, dim, wanted):
        centred = rows - rows.mean(dim, keepdim=True)
        return centred / (centred.square().mean(dim, keepdim=True) + 1e-5).sqrt() if wanted else rows

    def cut(rows, wanted):
        return rows.clamp(min=0) if wanted else rows

    y = norm(linear("attention_input.linear", network.table), 1, settings.attention_norm).clamp(min=0)
    shape = graph.num_nodes, settings.num_heads, settings.hidden_dim
    for number in range(settings.attention_layers):
        name = f"attention_layers.{number}.attention"
        q, k = (linear(f"{name}.{part}", y).view(shape) for part in ("query", "key"))
        v = linear(f"{name}.value", y).view(shape) if settings.attention_weight else y[:, None]
        out = simple_attention_reference("sgformer", q, k, v, settings.norm).mean(1)
        out = settings.update_weight * out + (1 - settings.update_weight) * y if settings.attention_residual else out
        y = cut(norm(out, 1, settings.attention_norm), settings.attention_activation)
    g = source = norm(linear("graph_input.linear", network.table), 0, settings.graph_norm).clamp(min=0)
    for number in range(settings.graph_layers):
        t = self_loop_propagation(graph, g)
        t = torch.cat([t, source], 1) if settings.use_init else t
        t = linear(f"graph_layers.{number}.linear", t) if settings.graph_layer_weight or settings.use_init else t
        t = cut(norm(t, 0, settings.graph_norm), settings.graph_activation)
        g = t + source if settings.graph_residual else t
    w = settings.graph_weight
    return linear("output", w * g + (1 - w) * y if settings.aggregate == "add" else torch.cat([y, g], 1))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_heads": 3, "norm": "row", "graph_weight": 0.8, "update_weight": 0.2},
        {"attention_layers": 2, "attention_activation": True, "graph_layers": 3, "use_init": True},
        {"aggregate": "cat", "attention_weight": False, "attention_residual": False, "graph_residual": False},
        {"graph_layer_weight": False, "graph_activation": False, "attention_norm": False, "graph_norm": False},
        {"graph_layer_weight": False, "use_init": True, "attention_layers": 0},
    ],
    ids=str,
)
def test_the_network_is_the_one_of_the_paper(graph, settings):
    network = network_of(graph, **settings)
    network.train()
    with torch.no_grad():
        got, wanted = network.encode(graph), by_hand(network, graph, SGFormerSettings(**{**SMALL, **settings}))
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_the_defaults_are_those_that_the_search_starts_from():
    settings = SGFormerSettings()
    assert (settings.attention_layers, settings.graph_layers, settings.num_heads) == (1, 2, 1)
    assert (settings.graph_weight, settings.update_weight, settings.aggregate, settings.norm) == (
        0.5,
        0.5,
        "add",
        "frobenius",
    )


def test_a_whole_graph_weight_hides_the_attention_and_none_hides_the_graph(graph):
    other = BipartiteGraph.from_interactions(random_log(seed=5))
    for weight, hidden in ((1.0, "attention"), (0.0, "graph")):
        network = network_of(graph, graph_weight=weight)
        before = final_rows(network, graph)
        changed = [parameter for name, parameter in network.named_parameters() if name.startswith(hidden)]
        assert len(changed) > 5
        for parameter in changed:
            parameter.data.add_(1.0)
        torch.testing.assert_close(final_rows(network, graph), before, rtol=0, atol=1e-12)
        unmoved = torch.allclose(final_rows(network, other), before, rtol=0, atol=1e-12)
        assert unmoved == (hidden == "graph")


def test_a_node_reaches_as_far_as_there_are_graph_layers():
    # a path u0 - i0 - u1 - i1 - u2 - i2
    graph = BipartiteGraph.from_interactions(Interactions.from_indices([0, 1, 1, 2, 2], [0, 0, 1, 1, 2]))
    distance = torch.tensor([0, 2, 4, 1, 3, 5])  # from u0 to u0, u1, u2, i0, i1, i2
    for layers in (0, 1, 2, 3):
        network = network_of(graph, graph_weight=1.0, graph_layers=layers, graph_activation=False, hidden_dim=16)
        before = final_rows(network, graph)
        network.table.data[0] += 1.0
        moved = (final_rows(network, graph) - before).abs().amax(1) > 1e-9
        assert torch.equal(moved, distance <= layers)


def test_the_order_of_users_and_items_does_not_matter():
    log, order = random_log(), np.random.default_rng(3)
    users, items = order.permutation(log.num_users), order.permutation(log.num_items)
    moved = Interactions.from_indices(users[log.users], items[log.items], log.num_users, log.num_items)
    graph, moved_graph = (BipartiteGraph.from_interactions(part) for part in (log, moved))
    position = torch.from_numpy(np.concatenate([users, items + log.num_users]))
    network = network_of(graph, num_heads=2)
    one_step(network, graph)  # running statistics away from their initial values
    moved_network = network_of(graph, num_heads=2)
    moved_network.load_state_dict(network.state_dict())
    with torch.no_grad():
        moved_network.table[position] = network.table.clone()
    torch.testing.assert_close(final_rows(moved_network, moved_graph)[position], final_rows(network, graph))


def test_running_statistics_follow_the_steps_and_only_the_steps(graph):
    network = network_of(graph, dropout=0.0, weight_decay=0.0)
    norm = network.graph_input.norm
    with torch.no_grad():
        inputs = network.graph_input.linear(network.table)
    final_rows(network, graph)
    assert torch.equal(norm.running_mean, torch.zeros_like(norm.running_mean))
    one_step(network, graph)
    torch.testing.assert_close(norm.running_mean, 0.1 * inputs.mean(0))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * inputs.var(0))
    for _ in range(200):
        one_step(network, graph)
    network.train()
    with torch.no_grad():
        learning = network.encode(graph)
    torch.testing.assert_close(final_rows(network, graph), learning, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    "settings", [{"update_weight": -0.5}, {"graph_weight": 1.5}, {"aggregate": "max"}, {"norm": "none"}]
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        SGFormer(**settings)


def test_one_user_and_one_item_are_enough():
    model = SGFormer(**SMALL, epochs=3).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
