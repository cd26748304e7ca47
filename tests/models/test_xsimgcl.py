"""What is special to XSimGCL: its settings, its loss, noise in training and none in answering, runs that resume."""

from dataclasses import replace

import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.light_propagation import light_propagation
from rankformer.losses.bpr import bpr
from rankformer.losses.contrastive import info_nce
from rankformer.losses.l2 import batch_l2
from rankformer.models.xsimgcl import XSimGCL, XSimGCLNetwork, XSimGCLSettings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


SMALL = {"embedding_dim": 6, "epochs": 6, "validate_every": 2, "batch_size": 16}
EDGES = [3, 1, 41, 7, 7]


def network_of(graph, **settings):
    settings = XSimGCLSettings(**{"embedding_dim": 3, "l2": 0.1, **settings})
    return XSimGCLNetwork(graph.num_users, graph.num_items, settings).double()


def batch_of(graph, edges, step=1):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, step, chosen), seed=0, step=step)


def test_the_defaults_are_what_validation_chose():
    settings = XSimGCLSettings()
    assert (settings.embedding_dim, settings.num_layers, settings.cl_layer) == (64, 3, 1)
    assert (settings.cl_weight, settings.cl_noise, settings.cl_temperature) == (0.05, 0.1, 0.2)
    assert (settings.batch_size, settings.learning_rate, settings.l2) == (2048, 3e-3, 3e-4)
    assert (settings.initialization, settings.schedule, settings.epochs) == ("least-squares", "cosine", 20)
    assert (settings.validate_every, settings.patience) == (1, 10)


@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
@pytest.mark.parametrize("settings", [{}, {"num_layers": 3, "cl_layer": 2, "l2_on": "final"}])
def test_the_gradient_of_the_whole_network_agrees_with_finite_differences(graph, edges, settings):
    network, batch = network_of(graph, **settings), batch_of(graph, edges)

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


@pytest.mark.parametrize("edges", [None, EDGES], ids=["full batch", "mini-batch"])
def test_without_noise_and_contrastive_loss_it_is_bpr_on_the_mean_of_lightgcns_layers_without_the_first(graph, edges):
    network, batch = network_of(graph, cl_weight=0, cl_noise=0, num_layers=3, cl_layer=3), batch_of(graph, edges)
    table = network.table.detach()
    mean = (4 * light_propagation(graph, table, 3) - table) / 3  # of layers 0..3, less layer 0
    triples = replace(batch.triples(graph), graph=None)  # so that losses take their plain form
    torch.testing.assert_close(network.loss(graph, batch), bpr(mean, triples) + batch_l2(table, triples, 0.1))
    torch.testing.assert_close(network.propagate(graph), mean)


def test_with_one_layer_the_contrastive_loss_is_of_the_final_embeddings_with_themselves(graph):
    batch, settings = batch_of(graph, EDGES), {"num_layers": 1, "cl_noise": 0, "cl_temperature": 0.5}
    with_contrast, without = (network_of(graph, cl_weight=weight, **settings) for weight in (1.0, 0.0))
    final = without.propagate(graph)
    nodes = graph.edge_users[EDGES].long().unique(), graph.edge_items[EDGES].long().unique()
    wanted = sum(info_nce(final[part], final[part], 0.5) for part in nodes)
    torch.testing.assert_close(with_contrast.loss(graph, batch) - without.loss(graph, batch), wanted)


def test_training_is_noisy_by_the_step_and_answering_never(graph):
    network = network_of(graph)
    losses = [network.loss(graph, batch_of(graph, EDGES)).item() for _ in range(2)]
    assert losses[0] == losses[1]
    same_negatives = batch_of(graph, EDGES).negatives
    other = network.loss(graph, Batch(torch.tensor(EDGES), same_negatives, seed=0, step=2)).item()
    assert other != losses[0]
    assert torch.equal(network.propagate(graph), network.propagate(graph))
    noise_free = network_of(graph, cl_noise=0)
    assert torch.equal(noise_free.propagate(graph), network.propagate(graph))


def test_users_and_items_without_interactions_have_the_embedding_zero():
    log = Interactions.from_indices([0, 1, 1], [0, 0, 2], 4, 5)
    embeddings = XSimGCL(**SMALL).fit(log).embeddings
    assert not embeddings.users[2:].any()
    assert not embeddings.items[[1, 3, 4]].any()
    assert embeddings.users[:2].any(1).all()


def test_an_interrupted_fit_continues_to_the_same_bits(tmp_path):
    data = random_log(), random_log(seed=1)
    whole = XSimGCL(**SMALL).fit(*data, run_folder=tmp_path / "whole")

    def stop_in_epoch_five(event):
        if event["event"] == "epoch" and event["epoch"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        XSimGCL(**SMALL).fit(*data, run_folder=tmp_path / "cut", on_event=stop_in_epoch_five)
    later = []
    model = XSimGCL(**SMALL).fit(*data, run_folder=tmp_path / "cut", resume=True, on_event=later.append)
    assert later[0]["epoch"] == 5
    assert torch.equal(model.embeddings.users, whole.embeddings.users)
    assert [event.get("loss") for event in model.log] == [event.get("loss") for event in whole.log]


@pytest.mark.parametrize("initialization", ["normal", "xavier-uniform", "spectral"])
def test_every_initialization_trains(initialization):
    model = XSimGCL(initialization=initialization, **SMALL).fit(random_log(), random_log(seed=1))
    assert model.embeddings.is_finite()
    losses = [event["loss"] for event in model.log if event["event"] == "epoch"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_layers": 0},
        {"cl_layer": 0},
        {"cl_layer": 4},
        {"num_layers": 1, "cl_layer": 2},
        {"cl_temperature": 0},
        {"cl_noise": -0.1},
        {"cl_weight": -1},
        {"initialization": "zero"},
    ],
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ConfigError):
        XSimGCL(**settings)


def test_a_contrastive_layer_beyond_the_last_says_which_there_are():
    with pytest.raises(ConfigError, match=r"cl_layer=4: .* one of the layers 1\.\.3; choose one of them"):
        XSimGCL(cl_layer=4)


def test_one_user_and_one_item_are_enough():
    model = XSimGCL(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
    assert model.recommend().table.num_rows == 0
