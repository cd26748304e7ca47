"""TopKGAT's network: what it computes and what it learns."""

import pytest
import torch

from rankformer import TopKGAT
from rankformer.errors import DataError
from rankformer.graph.batch import Batch
from rankformer.layers.light_propagation import light_propagation
from rankformer.layers.threshold_attention import threshold_attention
from rankformer.models.topkgat import TopKGATNetwork, TopKGATSettings
from rankformer.scoring.fold_in import ThresholdFoldIn, embed

from ..layers.test_softmax_attention import graph_of
from ..logs import random_log
from ..scoring.test_fold_in import graph_of as from_pairs
from ..scoring.test_fold_in import histories_of


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


def test_a_user_like_all_others_is_folded_in_to_its_trained_embedding():
    """With the mean threshold, and the sum of its items' embeddings as its own, nothing is left that fold-in lacks."""
    log = [(0, i) for i in range(6)] + [(1, 2), (1, 2), (2, 0), (2, 1), (3, 4), (4, 3), (6, 0), (6, 4), (6, 1)]
    graph = from_pairs(log)  # user 0 has every item, user 5 none, user 1 one item twice
    network = network_of(graph, num_layers=3)
    with torch.no_grad():
        network.thresholds[:] = torch.tensor([[0.3], [-1.0], [2.0]])
        network.table[:7] = light_propagation(graph, network.table.detach(), 1)[:7] * 2 - network.table[:7]
    rule, histories = network.fold_in(graph), histories_of(graph)
    assert rule.own_embedding
    torch.testing.assert_close(embed(rule, histories), network.propagate(graph).detach()[:7], rtol=1e-10, atol=1e-12)
    parts, rest = rule.split(histories)
    assert not rest.any()
    assert parts.shape == (len(log), 4)


def test_thresholds_of_users_without_interactions_do_not_count():
    graph = from_pairs([(0, 0), (1, 1)])
    network = network_of(graph, num_layers=1)
    mean = network.thresholds.detach().tanh()[0, :2].mean()
    assert network.fold_in(graph).thresholds == (pytest.approx(float(mean)),)


def test_the_rule_comes_back_from_what_is_stored_and_rejects_what_does_not_fit():
    graph = graph_of()
    rule, histories = network_of(graph, num_layers=2).fold_in(graph), histories_of(graph)
    again = ThresholdFoldIn.restore(rule.tensors(), rule.metadata())
    assert torch.equal(embed(again, histories), embed(rule, histories))
    with pytest.raises(DataError, match=r"must be layer\.0, layer\.1"):
        ThresholdFoldIn.restore({"layer.1": rule.states[1]}, rule.metadata())
    with pytest.raises(DataError, match=r"threshold\.1 is 'wide'"):
        ThresholdFoldIn.restore(rule.tensors(), {**rule.metadata(), "threshold.1": "wide"})


def test_new_users_get_nearly_the_lists_of_training_users_and_scores_are_explained(tmp_path):
    log = random_log()
    TopKGAT(epochs=20, embedding_dim=8).fit(log).save(tmp_path / "run")
    model = TopKGAT.load(tmp_path / "run")
    user = int(log.users[0])
    items = [int(item) for item in log.items[log.users == user]]
    known, new = model.recommend([user], k=5).to_dicts(), model.recommend(histories={"new": items}, k=5).to_dicts()
    assert len({row["item_id"] for row in known} & {row["item_id"] for row in new}) >= 3
    told = model.explain(user, known[0]["item_id"])
    assert told.score == pytest.approx(known[0]["score"], abs=1e-5)
