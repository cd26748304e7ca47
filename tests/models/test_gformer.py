"""What is special to GFormer: its embeddings, its loss, what is drawn when, and what a resumed run repeats."""

import math

import pytest
import torch
from tests.logs import random_log
from torch.nn.functional import cross_entropy

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.edge_attention import attention_weights
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.models import gformer
from rankformer.models.gformer import (
    GFormer,
    GFormerNetwork,
    GFormerSettings,
    TrainingRows,
    independence_loss,
    rationale_loss,
    softmax_loss,
)
from rankformer.training.trainer import TrainingLoop

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"embedding_dim": 8, "batch_size": 8, "num_anchors": 5, "resample_every": 3, "position_layers": 1}


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(random_log())


def network_of(graph, **settings):
    network = GFormerNetwork(graph.num_users, graph.num_items, GFormerSettings(**{**SMALL, **settings}))
    network.initialize(graph)
    return network


def batch_of(graph, step=1, edges=(3, 1, 41, 7, 7, 22, 9, 58), seed=0):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(seed, step, chosen), seed=seed, step=step)


def test_the_defaults_are_those_of_the_official_code_but_for_what_validation_chose():
    settings = GFormerSettings()
    assert (settings.embedding_dim, settings.num_layers, settings.num_heads) == (64, 5, 4)
    assert (settings.position_layers, settings.num_anchors, settings.resample_every) == (0, 32, 10)
    assert (settings.learning_rate, settings.batch_size, settings.clip_norm) == (0.01, 4096, 20)
    assert settings.weight_decay == 3e-4
    assert (settings.uniformity, settings.independence, settings.rationale) == (0.03, 1e-3, 1)
    assert settings.sampling_shares() == gformer.SamplingShares(encoder=0.9, view=0.1, decoder=0.8, extra=0.5)


@pytest.mark.parametrize(
    "settings", [{"embedding_dim": 10}, {"num_heads": 0}, {"encoder_share": 1.5}, {"self_feature": "other"}]
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        GFormer(**settings)


def test_the_table_is_initialized_in_xaviers_range_of_users_and_of_items(graph):
    table = network_of(graph, embedding_dim=64).table.detach()
    for rows in (table[: graph.num_users], table[graph.num_users :]):
        bound = math.sqrt(6 / (len(rows) + 64))
        assert 0.95 * bound < rows.abs().max() <= bound


@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_recommending_sums_the_powers_of_the_scaled_graph(graph, num_layers):
    network = network_of(graph, num_layers=num_layers).double()
    n, positive = graph.num_users, count_matrix(graph, torch.float64)
    full = torch.eye(graph.num_nodes, dtype=torch.float64)
    full[:n, n:], full[n:, :n] = positive, positive.T
    shrink = full.sum(1).rsqrt()
    scaled = shrink[:, None] * full * shrink
    powers = [torch.linalg.matrix_power(scaled, power) for power in range(num_layers + 1)]
    expected = torch.stack(powers).sum(0) @ network.table
    torch.testing.assert_close(network.propagate(graph), expected)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name != "table":
                parameter.fill_(7.0)
    torch.testing.assert_close(network.propagate(graph), expected)


def dense(matrix, size):
    return matrix @ torch.eye(size, dtype=torch.float64)


def dense_attention(network, entries, rows):
    """The attention layer's output as a dense product, its weights taken from the layer."""
    queries, keys, values = network.attention.project(rows)
    full = torch.zeros(len(queries), len(rows), len(rows), dtype=rows.dtype)
    full[:, entries.rows.long(), entries.columns.long()] = attention_weights(entries, queries, keys)
    return (full @ values).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("layers", [(0, 0), (1, 2), (3, 1)])
def test_training_rows_are_those_of_the_equations(graph, layers):
    network = network_of(graph, num_layers=layers[0], position_layers=layers[1]).double()
    draw = network.draw(graph, batch_of(graph))
    graphs, x = draw.graphs, network.table
    encoder, rationale, complement = (
        dense(matrix, len(x)) for matrix in (graphs.encoder, graphs.rationale, graphs.complement)
    )
    chain = [x]
    for _ in range(layers[0]):
        chain.append(encoder @ chain[-1])
    state, z = chain[-1], sum(chain)
    for position in network.positions:
        state = position(state, draw.anchors)
        z = z + state
    z = z + dense_attention(network, graphs.decoder, state)
    views = [
        x + 0.1 * dense_attention(network, view.entries, x) + sum(full @ rows for rows in chain[:-1])
        for full, view in ((rationale, graphs.rationale), (complement, graphs.complement))
    ]
    got = network.training_rows(draw)
    for mine, expected in zip((got.z, got.rationale, got.complement), (z, *views), strict=True):
        torch.testing.assert_close(mine, expected)


def rows_like(graph, seed, scale=1.0):
    shape = graph.num_nodes, 6
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def triple_of(graph):
    batch = batch_of(graph)
    return [nodes.long() for nodes in (graph.edge_users[batch.edges], graph.edge_items[batch.edges], batch.negatives)]


def test_without_uniformity_the_first_term_is_the_cross_entropy_over_all_items(graph):
    z, n = rows_like(graph, 0), graph.num_users
    users, positives, _ = triple_of(graph)
    expected = cross_entropy(z[users] @ z[n:].T, positives - n)
    torch.testing.assert_close(softmax_loss(z, users, positives, n, 0.0), expected)


def test_uniformity_counts_every_user_and_item_of_the_batch_once(graph):
    z, n = rows_like(graph, 0), graph.num_users
    users, positives, _ = triple_of(graph)
    assert len(users.unique()) < len(users)
    spread = sum(
        torch.logsumexp(z[nodes.unique()] @ keys.T, dim=1).mean()
        for nodes, keys in ((users, z[:n]), (positives, z[n:]))
    )
    got = softmax_loss(z, users, positives, n, 0.7) - softmax_loss(z, users, positives, n, 0.0)
    torch.testing.assert_close(got, 0.7 * spread)


def test_views_of_which_one_is_zero_cost_the_logarithm_of_the_dimension(graph):
    rows = TrainingRows(rows_like(graph, 0), rows_like(graph, 1), torch.zeros(graph.num_nodes, 6, dtype=torch.float64))
    assert independence_loss(rows, triple_of(graph)[0]).item() == pytest.approx(math.log(6))
    opposed = TrainingRows(rows.z, rows.rationale, -rows.rationale)
    agreed = TrainingRows(rows.z, rows.rationale, rows.rationale)
    assert independence_loss(opposed, triple_of(graph)[0]) < independence_loss(agreed, triple_of(graph)[0])


def test_a_negative_like_the_positive_costs_the_rationale_the_logarithm_of_two(graph):
    users, positives, negatives = triple_of(graph)
    view, z = rows_like(graph, 1), rows_like(graph, 0)
    z[negatives[:1]] = view[positives[:1]]
    rows = TrainingRows(z, view, view)
    assert rationale_loss(rows, users[:1], positives[:1], negatives[:1]).item() == pytest.approx(math.log(2))


def test_the_loss_is_the_weighted_sum_of_its_terms(graph):
    weights = {"uniformity": 0.5, "independence": 0.3, "rationale": 0.2, "weight_decay": 0.02}
    network = network_of(graph, **weights).double()
    batch = batch_of(graph, edges=(3, 1, 41))  # fewer than batch_size
    rows, triple = network.training_rows(network.draw(graph, batch)), triple_of(graph)
    users, positives, negatives = (nodes[:3] for nodes in triple)
    negatives = batch.negatives.long()
    learned = [network.table, *network.attention.parameters(), *network.positions.parameters()]
    expected = (
        softmax_loss(rows.z, users, positives, graph.num_users, 0.5)
        + 0.3 * independence_loss(rows, users)
        + 0.2 * (3 / 8) * rationale_loss(rows, users, positives, negatives)
        + 0.01 * sum(parameter.square().sum() for parameter in learned)
    )
    torch.testing.assert_close(network.loss(graph, batch), expected)


@pytest.mark.parametrize("self_feature", ["correct", "official"])
@pytest.mark.parametrize("edges", [None, (3, 1, 41, 7, 7)], ids=["full batch", "mini-batch"])
def test_the_gradient_of_the_whole_loss_agrees_with_finite_differences(graph, edges, self_feature):
    settings = {
        "embedding_dim": 4,
        "num_heads": 2,
        "view_share": 0.3,
        "independence": 0.5,
        "self_feature": self_feature,
        "weight_decay": 0.2,
    }
    network = network_of(graph, **settings).double()
    with torch.no_grad():
        network.table.mul_(3)
    network.loss(graph, batch_of(graph, 1, edges))
    batch = batch_of(graph, 2, edges)  # the draw of step 1 holds while parameters are moved
    learned = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    network.loss(graph, batch).backward()
    generator, step = torch.Generator().manual_seed(0), 1e-5
    for name, parameter in learned.items():
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        values = []
        with torch.no_grad():
            for sign in (1, -2):
                parameter.add_(sign * step * direction)
                values.append(network.loss(graph, batch).item())
            parameter.add_(step * direction)
        numeric = (values[0] - values[1]) / (2 * step)
        assert (parameter.grad * direction).sum().item() == pytest.approx(numeric, rel=1e-5, abs=1e-7), name


def test_a_step_moves_all_that_is_learned_and_leaves_the_scorer(graph):
    network = network_of(graph)
    loop = TrainingLoop(network, graph, network.settings)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    loop.one_step(torch.arange(8))
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if not name.startswith("score_positions.")}
    assert {name for name in before if name.startswith("score_positions.")}


def test_embeddings_fifty_times_as_long_still_have_finite_gradients(graph):
    network = network_of(graph, weight_decay=2e-4)
    with torch.no_grad():
        network.table.mul_(50 / network.table.std())
    loss = network.loss(graph, batch_of(graph))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters() if parameter.requires_grad)


def draws_of(graph, steps, **settings):
    """Which steps of a run draw graphs anew, and the anchors that hold at each."""
    network = network_of(graph, **settings)
    seen, fresh, anchors = None, [], []
    for step in range(1, steps + 1):
        draw = network.draw(graph, batch_of(graph, step))
        if draw is not seen:
            fresh.append(step)
        seen = draw
        anchors.append(tuple(draw.anchors.nodes.tolist()))
    return fresh, anchors


def test_graphs_are_drawn_anew_every_few_steps_and_at_each_epoch_and_anchors_at_each_epoch(graph):
    fresh, anchors = draws_of(graph, 17)  # 60 interactions in batches of 8: epochs of 8 steps
    assert fresh == [1, 4, 7, 9, 12, 15, 17]
    assert len(set(anchors[:8])) == len(set(anchors[8:16])) == 1
    assert len(set(anchors)) == 3


@pytest.mark.parametrize("batch_size", [None, 60, 4096])
def test_a_full_batch_draws_at_every_step(graph, batch_size):
    fresh, anchors = draws_of(graph, 3, batch_size=batch_size)
    assert fresh == [1, 2, 3]
    assert len(set(anchors)) == 3


def test_draws_depend_on_the_attention_that_was_learned(graph):
    one, other = network_of(graph), network_of(graph)
    with torch.no_grad():
        other.attention.query.weight.mul_(-30)
    values = [network.draw(graph, batch_of(graph)).graphs.rationale.values for network in (one, other)]
    assert values[0].shape != values[1].shape or not torch.equal(*values)


def test_attention_is_clipped_at_three(graph, monkeypatch):
    seen = []

    def spying(entries, attention, shares, generator):
        seen.append(attention)
        return gformer_sample(entries, attention, shares, generator)

    gformer_sample = gformer.sample_graphs
    monkeypatch.setattr(gformer, "sample_graphs", spying)
    lonely = BipartiteGraph.from_interactions(Interactions.from_indices([0, 1, 1], [0, 0, 1], 3, 2))
    network_of(lonely, added_share=0.0).draw(lonely, batch_of(lonely, edges=(0,)))
    attention = seen[0]
    assert attention.min() > 0
    assert attention.max() == 3.0  # user 2 has only its loop, which 4 heads give weight 1 each


def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path):
    data = random_log(), random_log(seed=1)
    settings = {**SMALL, "tune": False, "validate_every": 1, "learning_rate": 0.01}
    whole = GFormer(epochs=4, **settings).fit(*data, run_folder=tmp_path / "whole")
    part = tmp_path / "part"

    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GFormer(epochs=4, **settings).fit(*data, run_folder=part, on_event=stop)
    again = GFormer(epochs=4, **settings).fit(*data, run_folder=part, resume=True)
    assert [event["epoch"] for event in again.log] == [event["epoch"] for event in whole.log]
    for name, value in again.parameters().items():
        assert torch.equal(value, whole.parameters()[name]), name


def test_the_network_is_built_the_same_way_from_the_same_seed(graph):
    one, same, other = (
        GFormerNetwork(graph.num_users, graph.num_items, GFormerSettings(seed=seed)).state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_one_user_and_one_item_are_enough():
    model = GFormer(**SMALL, epochs=2).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0


@pytest.mark.parametrize("name", ["decoder_share", "extra_share", "added_share"])
def test_a_share_that_no_memory_could_hold_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        gformer.GFormer(**{name: 1e9})
