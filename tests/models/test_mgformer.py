"""What is special to MGFormer: its equations against a dense form, its options, its loss."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler
from rankformer.layers.degree_mask import mask_reference
from rankformer.models.mgformer import MGFormer, MGFormerNetwork, MGFormerSettings

pytestmark = pytest.mark.usefixtures("one_thread")

N, M = 12, 9
SMALL = {"embedding_dim": 6, "epochs": 4, "validate_every": 2, "batch_size": 16, "learning_rate": 0.02}


def random_log(n=N, m=M, size=50, seed=0):
    pairs = np.random.default_rng(seed).choice(n * m, size, replace=False)
    return Interactions.from_indices(pairs // m, pairs % m, n, m)


@pytest.fixture
def graph():
    return BipartiteGraph.from_interactions(random_log())


def network_of(graph, seed=0, **settings):
    settings = MGFormerSettings(seed=seed, **{"embedding_dim": 6, "initialization": "normal", **settings})
    network = MGFormerNetwork(graph.num_users, graph.num_items, settings)
    network.initialize(graph)
    with torch.no_grad():
        network.table.mul_(5)  # so that attention is far from even
    return network.double()


def batch_of(graph, edges=None, step=1):
    chosen = None if edges is None else torch.tensor(edges)
    return Batch(chosen, NegativeSampler.of(graph).draw(0, step, chosen), seed=0, step=step)


def features(rows, projection):
    """phi without the shifts: they cancel, but for the floor of 1e-6."""
    return torch.exp(rows @ projection.T - rows.square().sum(1, keepdim=True) / 2) / math.sqrt(len(projection))


def dense_rows(network, graph):
    """The layer as it is defined, by the N x N matrix."""
    d = network.table.shape[1]
    tokens = network.table + network.encoding
    queries, keys = (features(tokens @ w.weight.T * d**-0.25, network.projection) for w in (network.query, network.key))
    importance = network.mask(graph)
    weights = mask_reference(importance, importance) * (queries @ keys.T)
    return tokens + (weights / weights.sum(1, keepdim=True)) @ (tokens @ network.value.weight.T)


def test_the_defaults_are_a_reading_of_the_paper_and_what_validation_chose():
    settings = MGFormerSettings()
    assert (settings.embedding_dim, settings.gamma, settings.batch_size, settings.learning_rate) == (
        64,
        0.5,
        2048,
        5e-3,
    )
    assert (settings.projection, settings.mask, settings.residual, settings.loss) == (
        "simplex", "buckets", "token", "alignment",
    )  # fmt: skip
    assert (settings.initialization, settings.schedule, settings.epochs) == ("xavier-normal", "cosine", 50)
    network = MGFormerNetwork(3, 2, settings)
    assert network.projection.shape == (64, 64)
    assert network.encoding.shape == (5, 64)


def test_the_network_is_the_dense_masked_attention(graph):
    network = network_of(graph)
    torch.testing.assert_close(network.propagate(graph), dense_rows(network, graph), rtol=1e-4, atol=1e-4)


def test_the_network_is_the_dense_masked_attention_to_rounding_without_the_floor(graph, monkeypatch):
    monkeypatch.setattr("rankformer.models.mgformer.positive_features", unshifted)
    network = network_of(graph)
    torch.testing.assert_close(network.propagate(graph), dense_rows(network, graph), rtol=1e-12, atol=1e-12)


def unshifted(rows, projection, peak):
    del peak
    return features(rows, projection)


def test_the_encoding_is_the_interaction_matrix(graph):
    network = network_of(graph, embedding_dim=9)
    product = network.encoding[:N] @ network.encoding[N:].T
    expected = torch.zeros(N, M, dtype=torch.float64)
    expected[graph.edge_users.long(), graph.edge_items.long() - N] = 1
    torch.testing.assert_close(product, expected, rtol=1e-5, atol=1e-5)


OPTIONS = [
    {},
    {"mask": "none"},
    {"mask": "logarithm"},
    {"encoding": "none"},
    {"encoding": "project", "encoding_dim": 3},
    {"encoding": "concatenate", "encoding_dim": 4},
    {"encoding_matrix": "normalized"},
    {"block": "transformer", "bias": True},
    {"residual": "none"},
    {"residual": "table", "initialization": "xavier-normal"},
    {"projection": "gaussian", "num_features": 11},
    {"attention_scale": 0.1, "weights_gain": 0.5},
    {"redraw_every": 2, "sign_flips": True},
    {"loss": "bpr", "l2": 0.01},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_some_nodes_get_the_rows_that_all_nodes_would(graph, options):
    network, nodes = network_of(graph, **options), torch.tensor([0, 3, 11, 12, 20])
    for batch in (None, batch_of(graph, step=3)):
        everyone = network.rows(graph, None, batch)
        torch.testing.assert_close(network.rows(graph, nodes, batch), everyone[nodes], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_parameter_learns_and_nothing_else_does(graph, options):
    network = network_of(graph, weight_decay=0.0, **{"l2": 0.0, **options})
    network.loss(graph, batch_of(graph, [3, 1, 41, 7, 7, 20])).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert {"encoding", "projection"} == {name for name, _ in network.named_buffers()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_trains_and_its_run_repeats(options):
    data = random_log(), random_log(seed=1)
    first, again = (MGFormer(**{**SMALL, **options}).fit(*data).embeddings for _ in range(2))
    assert first.is_finite()
    assert torch.equal(first.users, again.users)


@pytest.mark.parametrize("loss", ["alignment", "bpr"])
def test_all_edges_as_one_batch_and_the_full_batch_have_one_loss(graph, loss):
    network = network_of(graph, loss=loss, weight_decay=0.1, l2=0.1)
    full, listed = batch_of(graph), batch_of(graph, list(range(graph.num_edges)))
    assert torch.equal(full.negatives, listed.negatives)
    losses = [network.loss(graph, batch) for batch in (full, listed)]
    gradients = [torch.autograd.grad(loss, network.table)[0] for loss in losses]
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-11)


def test_the_loss_is_alignment_plus_half_gamma_times_both_uniformities_and_regularization(graph):
    network, edges = network_of(graph, gamma=0.7, weight_decay=0.2, l2=0.3), [3, 1, 41, 7, 7]
    users, items = graph.edge_users[edges].long(), graph.edge_items[edges].long()
    z = normalize(network.propagate(graph))

    def uniformity(rows):
        distances = (rows[:, None] - rows[None, :]).square().sum(2)
        pairs = torch.triu_indices(5, 5, offset=1)
        return torch.exp(-2 * distances[pairs[0], pairs[1]]).mean().log()

    expected = (z[users] - z[items]).square().sum(1).mean() + 0.35 * (uniformity(z[users]) + uniformity(z[items]))
    expected = expected + 0.3 / 10 * (network.table[users].square().sum() + network.table[items].square().sum())
    rest = [weights for name, weights in network.named_parameters() if name != "table"]
    expected = expected + 0.1 * sum(weights.square().sum() for weights in rest)
    assert network.loss(graph, batch_of(graph, edges)).item() == pytest.approx(expected.item(), rel=1e-10)


def test_the_loss_does_not_see_the_length_of_the_embeddings(graph):
    network = network_of(graph, residual="none", weight_decay=0.0)
    batch = batch_of(graph, [3, 1, 41, 7, 7])
    before = network.loss(graph, batch).item()
    with torch.no_grad():
        network.value.weight.mul_(3)
    assert network.loss(graph, batch).item() == pytest.approx(before, rel=1e-12)


def test_numbering_the_nodes_otherwise_permutes_the_rows():
    log, users, items = random_log(), np.random.default_rng(1).permutation(N), np.random.default_rng(2).permutation(M)
    other = Interactions.from_indices(users[log.users], items[log.items], N, M)
    graphs = [BipartiteGraph.from_interactions(part) for part in (log, other)]
    first, second = (network_of(graph) for graph in graphs)
    order = torch.from_numpy(np.concatenate([users, N + items]))
    with torch.no_grad():
        for name in ("table", "encoding"):  # the signs of singular vectors are arbitrary, so the encoding goes along
            getattr(second, name)[order] = getattr(first, name)
    torch.testing.assert_close(second.propagate(graphs[1])[order], first.propagate(graphs[0]), rtol=1e-9, atol=1e-9)


def test_users_and_items_may_be_exchanged():
    log = random_log()
    graphs = [
        BipartiteGraph.from_interactions(part) for part in (log, Interactions.from_indices(log.items, log.users, M, N))
    ]
    first, second = (network_of(graph) for graph in graphs)
    order = torch.cat([torch.arange(N) + M, torch.arange(M)])
    with torch.no_grad():
        for name in ("table", "encoding"):
            getattr(second, name)[order] = getattr(first, name)
        second.mask.levels.copy_(first.mask.levels.flip(0))
    torch.testing.assert_close(second.propagate(graphs[1])[order], first.propagate(graphs[0]), rtol=1e-9, atol=1e-9)


def test_fresh_projections_come_at_their_steps_and_answers_use_the_saved_one(graph):
    network = network_of(graph, redraw_every=2)
    rows = [network.rows(graph, None, batch_of(graph, step=step)) for step in (1, 2, 3)]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[1], rows[2])
    fixed = network_of(graph)
    assert torch.equal(network.propagate(graph), fixed.propagate(graph))


def test_cosine_scores_compare_directions(graph):
    rows = network_of(graph, score="cosine").propagate(graph)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(N + M, dtype=torch.float64))


@pytest.mark.parametrize("options", [{"redraw_every": 3, "sign_flips": True}, {"loss": "bpr"}], ids=str)
def test_a_stopped_run_continues_to_the_same_bits(tmp_path, options):
    data = random_log(), random_log(seed=1)
    settings = {**SMALL, **options, "patience": 100}
    whole = MGFormer(**settings).fit(*data)

    class Stop(Exception):
        pass

    def stop(event):
        if event["event"] == "epoch" and event["epoch"] == 3:
            raise Stop

    with pytest.raises(Stop):
        MGFormer(**settings).fit(*data, run_folder=tmp_path, on_event=stop)
    resumed = MGFormer(**settings).fit(*data, run_folder=tmp_path, resume=True)
    assert torch.equal(resumed.embeddings.users, whole.embeddings.users)
    assert torch.equal(resumed.embeddings.items, whole.embeddings.items)


def test_a_saved_run_has_encoding_and_projection(tmp_path):
    model = MGFormer(**SMALL).fit(random_log())
    model.save(tmp_path / "run")
    again = MGFormer.load(tmp_path / "run")
    assert {"encoding", "projection", "mask.levels", "table"} <= again.parameters().keys()
    graph = BipartiteGraph.from_interactions(random_log())
    with torch.no_grad():
        rows = again.network.scorer(graph)
    torch.testing.assert_close(rows.users, model.embeddings.users)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoding_dim": 3}, "encoding_dim=3 cannot be added to tokens of dimension 64; use encoding='project'"),
        ({"embedding_dim": 1}, "needs embedding_dim of at least 2; use 'orthogonal'"),
        ({"gamma": -1}, "gamma=-1"),
        ({"objective": "bpr"}, "unknown setting 'objective'"),
        ({"mask": "cosine"}, "mask='cosine'"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        MGFormer(**settings)


def test_one_user_and_one_item_are_enough():
    model = MGFormer(**SMALL).fit(Interactions.from_indices([0], [0]))
    assert model.embeddings.is_finite()
