"""What is special to LightGCN: its layers, its settings, its agreement with matrix factorization."""

import math

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.models.lightgcn import LightGCN, LightGCNNetwork, LightGCNSettings
from rankformer.models.matrix_factorization import MatrixFactorization

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


SMALL = {"embedding_dim": 6, "epochs": 6, "validate_every": 2}


def batch_of(graph, edges=None):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=1)


def test_the_defaults_are_a_full_batch_and_what_validation_chose():
    settings = LightGCNSettings()
    assert (settings.embedding_dim, settings.num_layers) == (64, 2)
    assert (settings.batch_size, settings.learning_rate, settings.schedule) == (None, 0.05, "cosine")
    assert settings.l2 == "auto"
    assert (settings.epochs, settings.validate_every, settings.patience) == (100, 10, 10)


@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_the_network_is_the_mean_of_the_layers_of_the_paper(graph, num_layers):
    settings = LightGCNSettings(embedding_dim=6, num_layers=num_layers)
    network = LightGCNNetwork(graph.num_users, graph.num_items, settings).double()
    positive = count_matrix(graph, torch.float64)
    scaled = positive * positive.sum(1, keepdim=True).clamp(min=1).rsqrt() * positive.sum(0).clamp(min=1).rsqrt()
    table = network.table.detach()
    layers = [(table[: graph.num_users], table[graph.num_users :])]
    for _ in range(num_layers):
        users, items = layers[-1]
        layers.append((scaled @ items, scaled.T @ users))
    got = network.scorer(graph).cpu()
    torch.testing.assert_close(got.users, torch.stack([users for users, _ in layers]).mean(0))
    torch.testing.assert_close(got.items, torch.stack([items for _, items in layers]).mean(0))


@pytest.mark.parametrize("edges", [None, [3, 1, 41, 7, 7]], ids=["full batch", "mini-batch"])
def test_the_gradient_of_the_whole_network_agrees_with_finite_differences(graph, edges):
    settings = LightGCNSettings(embedding_dim=3, num_layers=2, l2=0.1)
    network = LightGCNNetwork(graph.num_users, graph.num_items, settings).double()
    batch = batch_of(graph, edges)

    def loss(table):
        return torch.func.functional_call(Lossy(network), {"network.table": table}, (graph, batch))

    assert torch.autograd.gradcheck(loss, network.table)


class Lossy(torch.nn.Module):
    """A network whose forward is its loss."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, graph, batch):
        return self.network.loss(graph, batch)


def test_a_table_of_zeros_loses_the_logarithm_of_two(graph):
    network = LightGCNNetwork(graph.num_users, graph.num_items, LightGCNSettings(embedding_dim=3, l2=0.1))
    torch.nn.init.zeros_(network.table)
    assert network.loss(graph, batch_of(graph)).item() == pytest.approx(math.log(2))


def test_the_order_of_the_interactions_does_not_matter():
    log = random_log()
    order = np.random.default_rng(1).permutation(len(log))
    first, second = (LightGCN(**SMALL).fit(part).embeddings for part in (log, log.rows(order)))
    assert torch.equal(first.users, second.users)
    assert torch.equal(first.items, second.items)


@pytest.mark.parametrize("batch_size", [None, 16])
def test_without_layers_it_is_matrix_factorization(batch_size):
    data = random_log(), random_log(seed=1)
    shared = {**SMALL, "l2": 1e-3, "batch_size": batch_size, "seed": 3, "initialization": "normal"}
    layers = LightGCN(num_layers=0, **shared).fit(*data)
    plain = MatrixFactorization(**shared).fit(*data)
    assert torch.equal(layers.embeddings.users, plain.embeddings.users)
    assert torch.equal(layers.embeddings.items, plain.embeddings.items)
    assert layers.recommend(k=5).table.equals(plain.recommend(k=5).table)


@pytest.mark.parametrize("settings", [{"num_layers": -1}, {"embedding_dim": 0}, {"num_layers": 1.5}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        LightGCN(**settings)


def test_one_user_and_one_item_are_enough():
    model = LightGCN(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0
