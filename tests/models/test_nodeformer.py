"""What is special to NodeFormer: its layer against a dense form, its edge loss, its noise."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import layer_norm

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.kernel_attention import attention_reference
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.models.nodeformer import (
    NodeFormer,
    NodeFormerNetwork,
    NodeFormerSettings,
    edge_score,
    noise_weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")

N, M = 12, 8
NODES = N + M
SMALL = {"embedding_dim": 6, "hidden_dim": 5, "output_dim": 4, "num_features": 7, "num_samples": 3, "num_heads": 2}
SHORT = {**SMALL, "epochs": 4, "validate_every": 2, "learning_rate": 0.01}


def random_log(n=N, m=M, size=45, seed=0):
    pairs = np.random.default_rng(seed).choice(n * m, size, replace=False)
    return Interactions.from_indices(pairs // m, pairs % m, n, m)


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


def network_of(graph, seed=0, **settings):
    settings = NodeFormerSettings(seed=seed, **{**SMALL, "l2": 0.1, **settings})
    network = NodeFormerNetwork(graph.num_users, graph.num_items, settings)
    with torch.no_grad():
        network.table.mul_(10)
    return network.double()


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gumbel(samples=3, heads=2, seed=0):
    draws = torch.empty(NODES, heads, samples, dtype=torch.float64)
    return -draws.exponential_(generator=torch.Generator().manual_seed(seed)).log()


def batch_of(graph, edges=None, step=1):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, step, chosen), seed=0, step=step)


def adjacency(graph):
    """A + I of all nodes, (N, N)."""
    counts = count_matrix(graph, torch.float64)
    full = torch.eye(NODES, dtype=torch.float64)
    full[:N, N:], full[N:, :N] = counts, counts.T
    return full


def scaled_adjacency(graph):
    full = adjacency(graph)
    return full * full.sum(1, keepdim=True).rsqrt() * full.sum(0).rsqrt()


def dense_layer(layer, graph, rows, projection, weights, attention=1.0):
    """The layer before its norm, head by head as it is defined, with the explicit N x N matrices."""
    features = layer.features(rows, projection)
    values = (rows @ layer.value.weight.T + layer.value.bias).chunk(len(features), 1)
    heads = []
    for head, ((queries, keys), value) in enumerate(zip(features, values, strict=True)):
        samples = [attention_reference(queries, keys, value, column) for column in weights[:, head].unbind(1)]
        out = attention * torch.stack(samples).mean(0)
        if layer.bias is not None:
            beta = layer.bias[head] if layer.settings.bias_transform == "identity" else layer.bias[head].sigmoid()
            out = out + beta * scaled_adjacency(graph) @ value
        heads.append(out)
    return torch.cat(heads, 1) @ layer.output.weight.T + layer.output.bias


def test_the_defaults_are_what_validation_chose():
    settings = NodeFormerSettings()
    assert (settings.num_layers, settings.num_heads, settings.num_features, settings.num_samples) == (2, 1, 30, 5)
    assert (settings.temperature, settings.edge_weight, settings.bias_order, settings.bias_transform) == (
        0.25,
        0.1,
        1,
        "identity",
    )
    assert (settings.batch_size, settings.learning_rate, settings.l2) == (None, 3e-3, 1e-4)
    assert settings.layer_norm
    assert settings.residual


@pytest.mark.parametrize("options", [{}, {"bias_transform": "sigmoid"}, {"bias_order": 0}, {"num_heads": 1}], ids=str)
def test_a_layer_is_the_explicit_attention_of_every_head_and_sample(graph, options):
    network = network_of(graph, residual=False, layer_norm=False, **options)
    layer, projection, rows = network.layers[0], network.projections[0], normal(NODES, 5).requires_grad_()
    weights = noise_weights(gumbel(heads=network.settings.num_heads), 0.25)
    inputs = [rows, *(p for name, p in layer.named_parameters())]
    outputs = layer(graph, rows, projection, weights)[0], dense_layer(layer, graph, rows, projection, weights)
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(out, inputs, normal(NODES, 5, seed=3)) for out in outputs]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


def test_residual_norm_and_activation_follow_in_this_order(graph):
    rows, ones = normal(NODES, 5), torch.ones(NODES, 2, 1, dtype=torch.float64)
    layer = network_of(graph, activation=True).layers[0]
    plain = dense_layer(layer, graph, rows, projection := normal(7, 5, seed=1), ones)
    expected = torch.nn.functional.elu(layer_norm(plain + rows, (5,)))
    torch.testing.assert_close(layer(graph, rows, projection, ones)[0], expected, rtol=1e-10, atol=1e-10)


def test_the_graph_bias_is_the_scaled_adjacency_with_loops(graph):
    layer = network_of(graph, residual=False, layer_norm=False).layers[0]
    rows, projection, ones = normal(NODES, 5), normal(7, 5, seed=1), torch.ones(NODES, 2, 1, dtype=torch.float64)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.3, -2.0]))
        with_bias = layer(graph, rows, projection, ones)[0]
        layer.bias.zero_()
        difference = with_bias - layer(graph, rows, projection, ones)[0]
        layer.bias.copy_(torch.tensor([0.3, -2.0]))
        expected = dense_layer(layer, graph, rows, projection, ones, attention=0.0) - layer.output.bias
    torch.testing.assert_close(difference, expected, rtol=1e-11, atol=1e-12)
    values = torch.linalg.eigvalsh(scaled_adjacency(graph))
    assert values.max().item() == pytest.approx(1)


def test_equal_value_rows_come_out_equal_without_the_graph(graph):
    layer = network_of(graph, residual=False, layer_norm=False, bias_order=0).layers[0]
    with torch.no_grad():
        layer.value.weight.zero_()
    out = layer(graph, normal(NODES, 5), normal(7, 5, seed=1), noise_weights(gumbel(), 0.25))[0]
    torch.testing.assert_close(out, out[:1].expand(NODES, -1), rtol=1e-12, atol=1e-12)


def test_a_constant_on_the_noise_of_a_head_and_sample_changes_nothing():
    noise = gumbel()
    shifted = noise + torch.tensor([[1.0, -3.0, 0.0], [5.0, 0.5, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(noise_weights(shifted, 0.25), noise_weights(noise, 0.25), rtol=1e-12, atol=0)
    assert noise_weights(noise, 0.25).max() == 1


def test_the_edge_score_is_the_mean_logarithm_of_the_explicit_weights(graph):
    layer = network_of(graph).layers[0]
    features = layer.features(normal(NODES, 5), normal(7, 5, seed=1))
    full = adjacency(graph)
    total = 0.0
    for queries, keys in features:
        weights = queries @ keys.T / (queries @ keys.T).sum(1, keepdim=True)
        assert weights.max() <= 1
        total = total + (full * weights.log() / full.sum(1, keepdim=True)).sum()
    expected = total / (2 * (2 * graph.num_edges + NODES))
    assert edge_score(graph, features).item() == pytest.approx(expected.item(), rel=1e-12)
    assert expected < 0


def test_equal_keys_make_every_weight_one_of_all_nodes(graph):
    same = normal(1, 7).abs().expand(NODES, -1).contiguous()
    entries = 2 * graph.num_edges + NODES
    score = edge_score(graph, [(normal(NODES, 7, seed=1).abs(), same)])
    assert score.item() == pytest.approx(-math.log(NODES) * NODES / entries, rel=1e-12)


@pytest.mark.parametrize("edges", [None, [3, 1, 40, 7, 7]], ids=["full batch", "mini-batch"])
def test_the_edge_loss_is_added_with_its_weight(graph, edges):
    losses = [network_of(graph, edge_weight=weight).loss(graph, batch_of(graph, edges)) for weight in (0, 1, 2.5)]
    assert losses[1] > losses[0]
    torch.testing.assert_close(losses[2] - losses[0], 2.5 * (losses[1] - losses[0]))


OPTIONS = [
    {},
    {"gumbel": False},
    {"bias_order": 0, "edge_weight": 0.0},
    {"bias_transform": "sigmoid", "jumping_knowledge": True},
    {"layer_norm": False, "activation": True},
    {"dropout": 0.3, "weight_decay": 1e-3},
    {"residual": False, "projection": "simplex", "batch_size": 16},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_parameter_learns_and_no_projection_does(graph, options):
    network = network_of(graph, **options)
    network.loss(graph, batch_of(graph)).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert [name for name, _ in network.named_buffers()] == ["projections"]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_trains_and_its_run_repeats(options):
    data = random_log(), random_log(seed=1)
    first, again = (NodeFormer(**{**SHORT, **options}).fit(*data).embeddings for _ in range(2))
    assert first.is_finite()
    assert first.users.shape == (N, 4)
    assert torch.equal(first.users, again.users)


def test_the_draws_of_a_step_depend_on_seed_and_step_alone(graph):
    network = network_of(graph, l2=0.0)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    losses = [network.loss(graph, batch_of(graph, step=step)).item() for step in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]
    assert torch.equal(torch.get_rng_state(), state)


def test_recommending_has_no_noise_and_one_saved_projection(graph):
    network = network_of(graph, dropout=0.5, l2=0.0)
    with torch.no_grad():
        before = network.propagate(graph)
        network.loss(graph, batch_of(graph))
        torch.manual_seed(3)
        assert torch.equal(network.propagate(graph), before)
        network.projections.copy_(network.projections.flip(1))  # the order of features is no matter, their values are
        torch.testing.assert_close(network.propagate(graph), before)
        network.projections.mul_(1.5)
        assert not torch.allclose(network.propagate(graph), before)


def test_numbering_the_nodes_otherwise_permutes_the_rows():
    log, users, items = random_log(), np.random.default_rng(1).permutation(N), np.random.default_rng(2).permutation(M)
    other = Interactions.from_indices(users[log.users], items[log.items], N, M)
    graphs = [BipartiteGraph.from_interactions(part) for part in (log, other)]
    order = torch.from_numpy(np.concatenate([users, N + items]))
    first, second = (network_of(graph) for graph in graphs)
    with torch.no_grad():
        second.table[order] = first.table
    torch.testing.assert_close(second.propagate(graphs[1])[order], first.propagate(graphs[0]), rtol=1e-10, atol=1e-10)
    rows, weights = normal(NODES, 5), noise_weights(gumbel(), 0.25)
    moved = torch.empty_like(rows), torch.empty_like(weights)
    moved[0][order], moved[1][order] = rows, weights
    with_noise = [
        network.layers[0](graph, *inputs)[0]
        for network, graph, inputs in (
            (first, graphs[0], (rows, first.projections[0], weights)),
            (second, graphs[1], (moved[0], first.projections[0], moved[1])),
        )
    ]
    torch.testing.assert_close(with_noise[1][order], with_noise[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [{"dropout": 0.3}, {"batch_size": 16, "num_heads": 1}], ids=str)
def test_a_stopped_run_continues_to_the_same_bits(tmp_path, options):
    data = random_log(), random_log(seed=1)
    settings = {**SHORT, **options, "patience": 100}
    whole = NodeFormer(**settings).fit(*data)

    class Stop(Exception):
        pass

    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == 3:
            raise Stop

    with pytest.raises(Stop):
        NodeFormer(**settings).fit(*data, run_folder=tmp_path, on_event=stop)
    resumed = NodeFormer(**settings).fit(*data, run_folder=tmp_path, resume=True)
    assert torch.equal(resumed.embeddings.users, whole.embeddings.users)
    assert torch.equal(resumed.embeddings.items, whole.embeddings.items)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bias_order": 2}, "bias_order=2: all pairs within .* use 0 or 1"),
        ({"hidden_dim": 1, "projection": "simplex"}, "needs hidden_dim of at least 2; use 'orthogonal'"),
        ({"temperature": 0}, "temperature=0"),
        ({"num_layers": 0}, "num_layers=0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        NodeFormer(**settings)


def test_one_user_and_one_item_are_enough():
    model = NodeFormer(**SHORT).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
