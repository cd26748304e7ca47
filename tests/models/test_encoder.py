"""What encoders share: their initialization, their dropout, their modes, their decay."""

import math

import pytest
import torch
from tests.logs import random_log

from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.initialization import spectral_table
from rankformer.layers.seeded import SeededDropout
from rankformer.models.difformer import DIFFormer
from rankformer.models.sgformer import SGFormer

pytestmark = pytest.mark.usefixtures("one_thread")

ENCODERS = [DIFFormer, SGFormer]
SMALL = {"embedding_dim": 6, "hidden_dim": 8, "output_dim": 5}


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(random_log())


@pytest.fixture(params=ENCODERS, ids=lambda kind: kind.name)
def kind(request):
    return request.param


def build(kind, graph, seed=0, **settings):
    settings = kind.settings_class(seed=seed, **{**SMALL, "l2": 0.1, **settings})
    return kind.network_class(graph.num_users, graph.num_items, settings)


def batch_of(graph, step=1, edges=None):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, 1, chosen), seed=0, step=step)


def test_the_defaults_are_what_validation_chose(kind):
    settings = kind.settings_class()
    assert (settings.embedding_dim, settings.hidden_dim, settings.output_dim) == (64, 64, 64)
    assert (settings.learning_rate, settings.l2, settings.batch_size) == (3e-3, 1e-4, None)
    assert (settings.dropout, settings.weight_decay, settings.initialization) == (0.2, 1e-3, "spectral")


def test_the_seed_decides_every_parameter_and_the_global_generator_none(kind, graph):
    state = torch.get_rng_state()
    first, second = (dict(build(kind, graph, seed=3).named_parameters()) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    other = dict(build(kind, graph, seed=4).named_parameters())
    for name, values in first.items():
        assert torch.equal(values, second[name])
        assert ".norm." in name or not torch.equal(values, other[name])


def test_a_spectral_initialization_sets_the_table_and_nothing_else(kind, graph):
    for initialization in ("normal", "spectral"):
        network, before = (build(kind, graph, 2, initialization=initialization) for _ in range(2))
        network.initialize(graph)
        wanted = spectral_table(graph, 6, 2) if initialization == "spectral" else before.table
        assert torch.equal(network.table, wanted)
        assert all(torch.equal(*pair) for pair in list(zip(network.parameters(), before.parameters(), strict=True))[1:])


def test_linear_layers_start_uniform_in_the_root_of_their_inputs(kind):
    network = kind.network_class(6, 4, kind.settings_class(embedding_dim=100, hidden_dim=64))
    for module in network.modules():
        if isinstance(module, torch.nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            for values in (module.weight, module.bias):
                assert values.abs().max() <= bound
                assert values.abs().max() > 0.9 * bound
            assert module.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_final_embeddings_have_the_output_dimension(kind, graph):
    embeddings = build(kind, graph).scorer(graph)
    assert embeddings.users.shape == (graph.num_users, 5)
    assert embeddings.items.shape == (graph.num_items, 5)


@pytest.mark.parametrize("edges", [None, [3, 1, 41, 7, 7]], ids=["full batch", "mini-batch"])
def test_gradients_agree_with_finite_differences(kind, graph, edges):
    network = build(kind, graph, dropout=0.3, weight_decay=0.01).double()
    batch = batch_of(graph, edges=edges)
    network.loss(graph, batch).backward()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter.add_(direction, alpha=step)
                ends.append(network.loss(graph, batch).item())
                parameter.add_(direction, alpha=-step)
        slope = (parameter.grad * direction).sum().item()
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7), name


def test_every_parameter_gets_a_finite_gradient_that_is_not_zero(kind, graph):
    network = build(kind, graph, l2=1e-4).double()
    network.loss(graph, batch_of(graph)).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # Under the joint norm keys and queries matter little; biases before a batch norm cancel out.
        assert parameter.grad.abs().max() > 0, name


def test_the_loss_depends_on_seed_and_step_alone(kind, graph):
    network = build(kind, graph, dropout=0.4)
    torch.manual_seed(0)
    first = network.loss(graph, batch_of(graph, step=7))
    network.loss(graph, batch_of(graph, step=8))
    torch.manual_seed(1)
    assert torch.equal(network.loss(graph, batch_of(graph, step=7)), first)
    assert not torch.equal(network.loss(graph, batch_of(graph, step=8)), first)


def test_dropout_is_only_in_the_loss(kind, graph):
    dropped, whole = build(kind, graph, dropout=0.4), build(kind, graph)
    assert torch.equal(dropped.scorer(graph).users, whole.scorer(graph).users)
    assert not torch.equal(dropped.loss(graph, batch_of(graph)), whole.loss(graph, batch_of(graph)))
    whole.load_state_dict(dropped.state_dict())
    assert torch.equal(dropped.scorer(graph).items, whole.scorer(graph).items)


def test_a_step_that_failed_does_not_leave_the_network_learning(kind, graph):
    dropped, whole = build(kind, graph, dropout=0.4), build(kind, graph)
    with pytest.raises(TypeError):
        dropped.loss(graph, Batch(None, None, seed=0, step=1))
    whole.load_state_dict(dropped.state_dict())
    assert torch.equal(dropped.scorer(graph).users, whole.scorer(graph).users)


def test_decay_is_what_adam_would_add_and_spares_the_table(kind, graph):
    plain, decayed = build(kind, graph, weight_decay=0.0).double(), build(kind, graph, weight_decay=0.3).double()
    for network in (plain, decayed):
        network.loss(graph, batch_of(graph)).backward()
    for (name, ours), (_, theirs) in zip(decayed.named_parameters(), plain.named_parameters(), strict=True):
        added = 0 if name == "table" else 0.3 * theirs.detach()
        torch.testing.assert_close(ours.grad, theirs.grad + added)


def test_masks_keep_the_right_fraction_at_the_right_size_and_differ_by_position_step_and_seed():
    dropout, rows = SeededDropout(0.25), torch.ones(500, 40)
    masks = []
    for seed, step in ((0, 1), (0, 2), (1, 1)):
        dropout.begin(seed, step)
        masks += [dropout(rows), dropout(rows)]
    for mask in masks:
        assert mask.unique().tolist() == pytest.approx([0, 4 / 3])
        assert (mask > 0).double().mean().item() == pytest.approx(0.75, abs=0.015)
    for number, mask in enumerate(masks):
        for other in masks[:number]:  # independent masks agree on 0.75^2 + 0.25^2 of the entries
            assert (mask == other).double().mean().item() == pytest.approx(0.625, abs=0.02)


class Cut(Exception):
    """Ends a training from outside."""


@pytest.mark.parametrize("batch_size", [None, 25])
def test_a_training_that_was_cut_off_continues_to_the_same_bits(kind, batch_size, tmp_path):
    settings = {**SMALL, "dropout": 0.3, "tune": False, "epochs": 8, "validate_every": 2, "batch_size": batch_size}
    data = random_log(), random_log(seed=1)
    straight = kind(**settings).fit(*data)

    def cut(event):
        if event["epoch"] == 5:
            raise Cut

    with pytest.raises(Cut):
        kind(**settings).fit(*data, run_folder=tmp_path, on_event=cut)
    resumed = kind(**settings).fit(*data, run_folder=tmp_path, resume=True)
    assert torch.equal(resumed.embeddings.users, straight.embeddings.users)
    assert resumed.parameters().keys() == straight.parameters().keys()
    assert all(torch.equal(values, straight.parameters()[name]) for name, values in resumed.parameters().items())
