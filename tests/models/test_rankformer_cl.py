"""What is special to Rankformer-CL: its composition of layers, its loss, its settings, runs that resume."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers import RankAttention, RankWeights, rank_attention_reference
from rankformer.layers.noisy_propagation import NoisyLayers, noisy_propagation
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.losses.bpr import bpr
from rankformer.losses.contrastive import info_nce
from rankformer.losses.l2 import batch_l2
from rankformer.models.rankformer import Rankformer
from rankformer.models.rankformer_cl import RankformerCL, RankformerCLNetwork, RankformerCLSettings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


SMALL = {"embedding_dim": 6, "epochs": 6, "validate_every": 2, "num_layers": 1, "batch_size": 16}
EDGES = [3, 1, 41, 7, 7]


def network_of(graph, **settings):
    settings = RankformerCLSettings(**{"embedding_dim": 3, "num_layers": 2, "l2": 0.1, **settings})
    return RankformerCLNetwork(graph.num_users, graph.num_items, settings).double()


def batch_of(graph, edges):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=1)


def listed_triples(graph, batch):
    """The triples of a batch without the graph, so that losses take their plain form."""
    return replace(batch.triples(graph), graph=None)


def regularized_bpr(final, table, triples):
    return bpr(final, triples) + batch_l2(table, triples, 0.1)


def dense_propagation(graph, z):
    n, positive = graph.num_users, count_matrix(graph, torch.float64)
    scaled = positive * positive.sum(1, keepdim=True).clamp(min=1).rsqrt() * positive.sum(0).clamp(min=1).rsqrt()
    return torch.cat([scaled @ z[n:], scaled.T @ z[:n]])


def test_the_defaults_are_the_papers_but_for_initialization_and_learning_rate():
    settings = RankformerCLSettings()
    assert (settings.embedding_dim, settings.alpha) == (64, 2)
    assert (settings.cl_weight, settings.cl_noise, settings.cl_temperature) == (0.05, 0.1, 0.15)
    assert (settings.batch_size, settings.learning_rate, settings.l2) == (2048, 5e-3, 1e-4)
    assert (settings.initialization, settings.schedule, settings.epochs) == ("spectral", "cosine", 12)
    assert (settings.validate_every, settings.patience) == (1, 10)


def test_the_network_is_two_propagations_and_then_the_layers_of_the_paper(graph):
    network = network_of(graph, num_layers=3, tau=0.3, alpha=2.5)
    v = dense_propagation(graph, dense_propagation(graph, network.table.detach()))
    for _ in range(3):
        v = rank_attention_reference(graph, v, RankWeights(alpha=2.5), 0.3)
    with torch.no_grad():
        got = network.scorer(graph)
    torch.testing.assert_close(torch.cat([got.users, got.items]), v)


@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
def test_without_noise_and_contrastive_loss_it_is_bpr_on_that_composition(graph, edges):
    network, batch = network_of(graph, cl_noise=0, cl_weight=0, tau=0.3), batch_of(graph, edges)
    table = network.table.detach().clone().requires_grad_()
    v, layer = dense_propagation(graph, dense_propagation(graph, table)), RankAttention(0.3)
    wanted = regularized_bpr(layer(graph, layer(graph, v)), table, listed_triples(graph, batch))
    got = network.loss(graph, batch)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(got, network.table)[0], torch.autograd.grad(wanted, table)[0], rtol=1e-9, atol=1e-12
    )


def test_the_contrastive_loss_is_of_the_final_embeddings_with_the_first_noisy_propagation(graph):
    network, batch = network_of(graph, cl_weight=0.5, cl_temperature=0.3, tau=0.4), batch_of(graph, EDGES)
    every_node, layer = torch.arange(graph.num_nodes), RankAttention(0.4)
    table = network.table.detach()
    warm, first, _ = noisy_propagation(graph, table, NoisyLayers(2, 1, 0.1, 0, 1), every_node, "last")
    final = layer(graph, layer(graph, warm))
    triples = listed_triples(graph, batch)
    wanted = regularized_bpr(final, table, triples)
    for nodes in (triples.users.long().unique(), triples.positives.long().unique()):
        wanted += 0.5 * info_nce(final[nodes], first[nodes], 0.3)
    torch.testing.assert_close(network.loss(graph, batch), wanted)


@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
@pytest.mark.parametrize("num_layers", [0, 2])
def test_the_gradient_of_the_whole_network_agrees_with_finite_differences(graph, edges, num_layers):
    network, batch = network_of(graph, num_layers=num_layers, cl_weight=0.5), batch_of(graph, edges)
    network.loss(graph, batch).backward()
    values, slope = network.table.data, torch.zeros_like(network.table)
    for index in np.ndindex(*values.shape):
        ends = []
        for step in (1e-5, -1e-5):
            kept = values[index].item()
            values[index] += step
            ends.append(network.loss(graph, batch).item())
            values[index] = kept
        slope[index] = (ends[0] - ends[1]) / 2e-5
    torch.testing.assert_close(network.table.grad, slope.detach(), rtol=1e-6, atol=1e-8)


def test_training_is_noisy_by_the_step_and_answering_never(graph):
    network, batch = network_of(graph), batch_of(graph, EDGES)
    first = network.loss(graph, batch).item()
    assert network.loss(graph, batch).item() == first
    assert network.loss(graph, Batch(batch.edges, batch.negatives, seed=0, step=2)).item() != first
    with torch.no_grad():
        assert torch.equal(network.propagate(graph), network.propagate(graph))
        assert torch.equal(network.propagate(graph), network_of(graph, cl_noise=0).propagate(graph))


def test_users_and_items_without_interactions_train_along():
    log = Interactions.from_indices([0, 1, 1, 3], [0, 0, 2, 2], 4, 5)
    model = RankformerCL(**SMALL).fit(log)
    assert model.embeddings.is_finite()
    assert model.embeddings.users[[0, 1, 3]].any(1).all()


@pytest.mark.parametrize("batch_size", [16, None])
def test_an_interrupted_fit_continues_to_the_same_bits(tmp_path, batch_size):
    data, settings = (random_log(), random_log(seed=1)), {**SMALL, "batch_size": batch_size}
    whole = RankformerCL(**settings).fit(*data, run_folder=tmp_path / "whole")

    def stop_in_epoch_five(event):
        if event["event"] == "epoch" and event["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RankformerCL(**settings).fit(*data, run_folder=tmp_path / "cut", on_event=stop_in_epoch_five)
    later = []
    model = RankformerCL(**settings).fit(*data, run_folder=tmp_path / "cut", resume=True, on_event=later.append)
    assert later[0]["epoch"] == 5
    assert torch.equal(model.embeddings.users, whole.embeddings.users)
    assert [event.get("loss") for event in model.log] == [event.get("loss") for event in whole.log]


@pytest.mark.parametrize(
    "settings", [{"tau": 1.5}, {"alpha": -1}, {"num_layers": -1}, {"cl_temperature": 0}, {"cl_layer": 1}]
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        RankformerCL(**settings)


def test_one_user_and_one_item_are_enough():
    model = RankformerCL(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0


def test_a_least_squares_initialization_is_rankformers_a_tenth_as_large():
    users, items = np.divmod(np.arange(3600), 60)
    keep = (users % 2 == items % 2) & (np.random.default_rng(0).random(3600) < 0.9)
    graph = BipartiteGraph.from_interactions(Interactions.from_indices(users[keep], items[keep]))
    tables = []
    for model in (Rankformer, RankformerCL):
        settings = model.settings_class(initialization="least-squares", embedding_dim=4, seed=1)
        network = model.network_class(graph.num_users, graph.num_items, settings)
        network.initialize(graph)
        tables.append(network.table.detach())
    torch.testing.assert_close(tables[1], 0.1 * tables[0])
    scores = tables[1][:60] @ tables[1][60:].T
    assert bool(scores[0, ::2].mean() > 5 * scores[0, 1::2].mean().abs())
