"""What is special to Rankformer: its layers, its settings, its runs."""

import json
import os

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, NotSupportedError, RunFolderError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers import rank_attention_reference
from rankformer.layers.rank_attention_reference import count_matrix
from rankformer.models.rankformer import Rankformer, RankformerNetwork, RankformerSettings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


SMALL = {"embedding_dim": 6, "epochs": 6, "validate_every": 2, "num_layers": 1}


def test_the_network_is_the_warm_up_and_then_the_layers_of_the_paper(graph):
    settings = RankformerSettings(embedding_dim=6, num_layers=3, tau=0.3, alpha=2.5)
    network = RankformerNetwork(graph.num_users, graph.num_items, settings).double()
    n, z = graph.num_users, network.table.detach()
    positive = count_matrix(graph, torch.float64)
    v = torch.cat(
        [
            positive @ z[n:] / positive.sum(1, keepdim=True).clamp(min=1),
            positive.T @ z[:n] / positive.sum(0)[:, None].clamp(min=1),
        ]
    )
    for _ in range(3):
        v = rank_attention_reference(graph, v, settings.rank_weights(), 0.3)
    with torch.no_grad():
        got = network.scorer(graph)
    torch.testing.assert_close(torch.cat([got.users, got.items]), v)


@pytest.mark.parametrize("edges", [None, [3, 1, 41, 7, 7]], ids=["full batch", "mini-batch"])
def test_the_gradient_of_the_whole_network_agrees_with_finite_differences(graph, edges):
    settings = RankformerSettings(embedding_dim=3, num_layers=2, l2=0.1)
    network = RankformerNetwork(graph.num_users, graph.num_items, settings).double()
    chosen = None if edges is None else torch.tensor(edges)
    batch = Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=1)
    loss = network.loss(graph, batch)
    loss.backward()
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


def test_the_table_is_initialized_at_a_tenth_and_its_seed_decides_it():
    settings = RankformerSettings(embedding_dim=64)
    table = RankformerNetwork(1200, 800, settings).table
    assert table.std().item() == pytest.approx(0.1, rel=0.02)
    assert table.mean().item() == pytest.approx(0.0, abs=0.002)
    assert torch.equal(table, RankformerNetwork(1200, 800, settings).table)
    assert not torch.equal(table, RankformerNetwork(1200, 800, settings.replace(seed=1)).table)


@pytest.mark.parametrize(
    "settings", [{"negatives": "pull"}, {"similarity": False}, {"tau": 1.5}, {"alpha": -1}, {"num_layers": -1}]
)
def test_settings_without_a_meaning_are_refused_before_training(settings):
    with pytest.raises(ConfigError):
        Rankformer(**{**SMALL, **settings}).fit(random_log())


def test_the_log_file_holds_what_the_model_logged(tmp_path):
    seen = []
    model = Rankformer(**SMALL).fit(random_log(), random_log(seed=1), run_folder=tmp_path, on_event=seen.append)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == model.log == seen
    assert [line["event"] for line in lines[:3]] == ["epoch", "epoch", "validation"]


def test_a_fresh_fit_in_a_used_folder_starts_over(tmp_path):
    data = random_log(), random_log(seed=1)
    Rankformer(**SMALL).fit(*data, run_folder=tmp_path)
    model = Rankformer(seed=5, **SMALL).fit(*data, run_folder=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == model.log


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda: (Rankformer(seed=1, **SMALL), random_log(), random_log(seed=1)), "its seed is 0"),
        (lambda: (Rankformer(**{**SMALL, "tau": 0.1}), random_log(), random_log(seed=1)), "its settings"),
        (lambda: (Rankformer(**SMALL), random_log(seed=2), random_log(seed=1)), "its train"),
        (lambda: (Rankformer(**SMALL), random_log(), random_log(seed=2)), "its valid"),
        (lambda: (Rankformer(**SMALL), random_log(), None), "its valid"),
    ],
)
def test_resuming_with_another_seed_setting_or_data_is_refused(tmp_path, change, complaint):
    Rankformer(**SMALL).fit(random_log(), random_log(seed=1), run_folder=tmp_path)
    model, train, valid = change()
    with pytest.raises(RunFolderError, match=complaint):
        model.fit(train, valid, run_folder=tmp_path, resume=True)


def test_an_interrupted_fit_continues_where_its_last_checkpoint_was(tmp_path):
    data = random_log(), random_log(seed=1)
    whole = Rankformer(**SMALL).fit(*data, run_folder=tmp_path / "whole")

    def stop_in_epoch_five(event):
        if event["event"] == "epoch" and event["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Rankformer(**SMALL).fit(*data, run_folder=tmp_path / "cut", on_event=stop_in_epoch_five)
    with open(tmp_path / "cut" / "log.jsonl", "a") as stream:
        stream.write('{"event": "epo')  # a line cut short
    later = []
    model = Rankformer(**SMALL).fit(*data, run_folder=tmp_path / "cut", resume=True, on_event=later.append)
    assert later[0]["epoch"] == 5
    assert torch.equal(model.embeddings.users, whole.embeddings.users)
    assert [event.get("loss") for event in model.log] == [event.get("loss") for event in whole.log]
    assert [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()] == model.log


def test_without_a_run_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Rankformer(**SMALL).fit(random_log(), random_log(seed=1))
    assert os.listdir(tmp_path) == []


def test_one_user_and_one_item_are_enough():
    model = Rankformer(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0


def test_a_least_squares_initialization_has_entries_of_size_one_and_no_zero_embedding():
    pairs = [(u, i) for u in range(12) for i in range(8) if (u + i) % 2 == 0] + [(12, 8)]  # the last is isolated
    users, items = np.array(pairs).T
    graph = BipartiteGraph.from_interactions(Interactions.from_indices(users, items, 14, 9))
    settings = RankformerSettings(embedding_dim=4, l2=1e-4)
    assert settings.initialization == "least-squares"
    network = RankformerNetwork(14, 9, settings)
    network.initialize(graph)
    lengths = torch.linalg.vector_norm(network.table.detach(), dim=1)
    assert float(lengths.min()) > 1e-3
    assert 0.5 < float(network.table.detach()[:12].square().mean().sqrt()) < 2
    loss = network.loss(graph, Batch(None, graph.edge_items, 0, 1))
    loss.backward()
    assert bool(torch.isfinite(network.table.grad).all())


@pytest.mark.parametrize("curvature", [0, -1])
def test_fold_in_is_exact_for_every_curvature(curvature, tmp_path):
    log = random_log()
    model = Rankformer(curvature=curvature, **SMALL).fit(log)
    model.save(tmp_path / "run")
    loaded, user = Rankformer.load(tmp_path / "run"), int(log.users[0])
    history = [int(item) for item in log.items[log.users == user]]
    known, new = loaded.recommend([user], k=4), loaded.recommend(histories={"new": history}, k=4)
    assert known.table["item_id"].equals(new.table["item_id"])
    assert new.table["score"].to_pylist() == pytest.approx(known.table["score"].to_pylist(), rel=1e-4)
    assert loaded.settings.curvature == curvature


def test_a_softmax_layer_takes_its_settings_and_has_no_fold_in(graph, tmp_path):
    settings = RankformerSettings(layer="softmax", layer_temperature=0.7, layer_samples=5, tau=0.3, **SMALL)
    [layer] = RankformerNetwork(graph.num_users, graph.num_items, settings).layers
    assert (layer.tau, layer.temperature, layer.samples) == (0.3, 0.7, 5)
    model = Rankformer(layer="softmax", **SMALL).fit(random_log())
    model.save(tmp_path / "run")
    assert Rankformer.load(tmp_path / "run").recommend(k=3).table.equals(model.recommend(k=3).table)
    with pytest.raises(NotSupportedError, match="cannot score new users"):
        model.recommend(histories={"new": [0, 1]})
