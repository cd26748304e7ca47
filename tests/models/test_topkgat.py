"""TopKGAT's network: what it computes and what it learns."""

import pytest
import torch

from rankformer import TopKGAT
from rankformer.errors import NotSupportedError
from rankformer.graph.batch import Batch
from rankformer.layers.threshold_attention import threshold_attention
from rankformer.models.topkgat import TopKGATNetwork, TopKGATSettings

from ..layers.test_softmax_attention import graph_of
from ..logs import random_log


def network_of(graph, **settings):
    return TopKGATNetwork(graph.num_users, graph.num_items, TopKGATSettings(embedding_dim=4, **settings)).double()


def test_only_the_last_layer_scores_and_each_layer_has_its_thresholds():
    graph = graph_of()
    network = network_of(graph, num_layers=2)
    z = network.table.detach()
    for limits in network.thresholds.detach().tanh():
        z = threshold_attention(graph, z, limits)
    assert torch.equal(network.propagate(graph), z)
    assert network.thresholds.shape == (2, graph.num_users)


def test_thresholds_are_standard_normal_of_the_seed():
    graph = graph_of(400, 5)
    first, again, other = (network_of(graph, seed=seed).thresholds.detach() for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.mean().abs() < 0.1
    assert first.std() == pytest.approx(1, abs=0.1)


def test_table_and_thresholds_learn():
    graph = graph_of()
    network = network_of(graph, num_layers=2)
    network.loss(graph, Batch(None, graph.edge_items.flip(0), 0, 1)).backward()
    assert network.table.grad.abs().max() > 0
    assert (network.thresholds.grad.abs().amax(1) > 0).all()


def test_a_new_user_has_no_threshold():
    model = TopKGAT(epochs=1, embedding_dim=4).fit(random_log())
    with pytest.raises(NotSupportedError, match="cannot score new users"):
        model.recommend(histories={"new": [0, 1]})
