"""What is special to matrix factorization: the score is the table's, and the loss has a closed-form gradient."""

import math

import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.models.lightgcn import LightGCNNetwork, LightGCNSettings
from rankformer.models.matrix_factorization import (
    MatrixFactorization,
    MatrixFactorizationNetwork,
    MatrixFactorizationSettings,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


SMALL = {"embedding_dim": 6, "epochs": 6, "validate_every": 2}


def network_of(graph, embedding_dim=6, l2=0.1):
    settings = MatrixFactorizationSettings(embedding_dim=embedding_dim, l2=l2)
    return MatrixFactorizationNetwork(graph.num_users, graph.num_items, settings)


def batch_of(graph, edges=None):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=1)


def test_the_defaults_are_a_full_batch_and_what_validation_chose():
    settings = MatrixFactorizationSettings()
    assert settings.embedding_dim == 64
    assert (settings.batch_size, settings.learning_rate, settings.schedule) == (None, 0.05, "cosine")
    assert settings.l2 == "auto"
    assert (settings.epochs, settings.validate_every, settings.patience) == (300, 20, 10)
    assert settings.initialization == "least-squares"


def test_scores_are_products_of_table_rows_and_those_of_lightgcn_without_layers(graph):
    network = network_of(graph)
    settings = LightGCNSettings(embedding_dim=6, num_layers=0, l2=0.1)
    other = LightGCNNetwork(graph.num_users, graph.num_items, settings)
    users, n = torch.arange(graph.num_users), graph.num_users
    scores = network.scorer(graph).cpu().scores(users)
    assert torch.equal(scores, (network.table[:n] @ network.table[n:].T).detach())
    assert torch.equal(scores, other.scorer(graph).cpu().scores(users))
    assert torch.equal(network.loss(graph, batch_of(graph)), other.loss(graph, batch_of(graph)))


def test_a_table_of_zeros_loses_the_logarithm_of_two(graph):
    for l2 in (0.0, 1e-4, 10.0):
        network = network_of(graph, l2=l2)
        torch.nn.init.zeros_(network.table)
        assert network.loss(graph, batch_of(graph)).item() == pytest.approx(math.log(2))


def test_training_starts_near_the_logarithm_of_two():
    graph = BipartiteGraph.from_interactions(random_log(100, 80, 2000))
    loss = network_of(graph, 64, l2=1e-4).loss(graph, batch_of(graph))
    assert loss.item() == pytest.approx(math.log(2), abs=0.02)


@pytest.mark.parametrize("edges", [None, [3, 1, 41, 7, 7, 8]], ids=["full batch", "mini-batch"])
def test_the_gradient_is_the_closed_form_with_repeated_nodes(graph, edges):
    network, l2 = network_of(graph, 3).double(), 0.1
    batch = batch_of(graph, edges)
    network.loss(graph, batch).backward()
    chosen = slice(None) if edges is None else torch.tensor(edges)
    z, wanted = network.table.detach(), torch.zeros_like(network.table.detach())
    triples = torch.stack([graph.edge_users[chosen], graph.edge_items[chosen], batch.negatives], dim=1).tolist()
    for u, i, j in triples:
        g = -torch.sigmoid(z[u] @ z[j] - z[u] @ z[i])
        wanted[u] += (g * (z[i] - z[j]) + l2 * z[u]) / len(triples)
        wanted[i] += (g * z[u] + l2 * z[i]) / len(triples)
        wanted[j] += (-g * z[u] + l2 * z[j]) / len(triples)
    torch.testing.assert_close(network.table.grad, wanted)


def test_l2_regularization_pulls_users_by_their_fraction_of_the_interactions(graph):
    slopes = []
    for l2 in (0.0, 1.0):
        network = network_of(graph, l2=l2).double()
        network.loss(graph, batch_of(graph)).backward()
        slopes.append(network.table.grad[: graph.num_users])
    fraction = graph.degree[: graph.num_users, None] / graph.num_edges
    torch.testing.assert_close(slopes[1] - slopes[0], fraction * network.table.detach()[: graph.num_users])


def test_rotating_all_embeddings_alike_changes_no_loss(graph):
    network = network_of(graph).double()
    before = network.loss(graph, batch_of(graph))
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    network.table.data @= turn
    torch.testing.assert_close(network.loss(graph, batch_of(graph)), before)


def test_swapping_positive_and_negative_changes_the_loss_by_the_margin(graph):
    network = network_of(graph, l2=0.0).double()
    users, positives, negatives = graph.edge_users.long(), graph.edge_items.long(), batch_of(graph).negatives.long()
    edges = torch.arange(graph.num_edges)
    forward = network.loss(graph, Batch(edges, negatives, 0, 1))
    mirror = BipartiteGraph.from_interactions(
        Interactions.from_indices(users, negatives - graph.num_users, graph.num_users, graph.num_items)
    )
    order = torch.argsort(users * graph.num_nodes + negatives, stable=True)
    backward = network.loss(mirror, Batch(edges, positives[order], 0, 1))
    z = network.table.detach()
    margin = (z[users] * (z[positives] - z[negatives])).sum(1).mean()
    torch.testing.assert_close((backward - forward).detach(), margin)


@pytest.mark.parametrize("settings", [{"embedding_dim": 0}, {"num_layers": 1}])
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        MatrixFactorization(**settings)


def test_items_without_an_interaction_stay_candidates():
    train = Interactions.from_indices([0, 0, 1], [0, 1, 1], 2, 4)
    model = MatrixFactorization(**SMALL).fit(train)
    assert sorted(model.recommend([1], k=4).table["item_id"].to_pylist()) == [0, 2, 3]


def test_one_user_and_one_item_are_enough():
    model = MatrixFactorization(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0
