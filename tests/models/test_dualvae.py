"""DualVAE: the identities of its losses, its phases, and its recommendations."""

import math

import numpy as np
import pytest
import torch
from tests.logs import random_log

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError, NotSupportedError
from rankformer.graph.batch import Batch
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers.aspects import BinaryRows
from rankformer.layers.dual_decoder import Opposite, decode, likelihood_of
from rankformer.losses.latent import aspect_contrast, divergence
from rankformer.models.dualvae import DualVAE, DualVAENetwork, DualVAESettings, aspect_attention
from rankformer.scoring.histories import Histories
from rankformer.training.trainer import TrainingLoop

pytestmark = pytest.mark.usefixtures("one_thread")
N, M = 9, 7
PLAIN = {
    "row_scale": "sum",
    "dropout": 0.0,
    "initialization": "normal",
    "shuffle": False,
    "schedule": "constant",
}  # the authors'
SMALL = {"num_aspects": 2, "embedding_dim": 3, "hidden_dim": 4, "decoder_dim": 5, "batch_size": 4, **PLAIN}
LOG = random_log(N, M, 25)
USERS, ITEMS = range(N), range(N, N + M)


@pytest.fixture(scope="module")
def graph():
    return BipartiteGraph.from_interactions(LOG)


def network_of(seed=0, sizes=(N, M), **settings):
    return DualVAENetwork(*sizes, DualVAESettings(seed=seed, **{**SMALL, **settings}))


def batch_of(nodes, step=1):
    return Batch(None, torch.empty(0), seed=3, step=step, nodes=torch.tensor(list(nodes)))


def loop_of(graph, seed=0, **settings):
    network = network_of(**settings)
    return TrainingLoop(network, graph, network.settings.replace(seed=seed))


def copy_of(state):
    return {name: value.clone() for name, value in state.items()}


def changed(before, after):
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def rows64(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_attention_sums_to_one_and_is_even_where_aspects_are_equal():
    latents, prototypes = rows64(3, 5, 4), rows64(3, 4, seed=1)
    torch.testing.assert_close(aspect_attention(latents, prototypes).sum(0), torch.ones(5, dtype=torch.float64))
    for even in (aspect_attention(latents, 0 * prototypes), aspect_attention(0 * latents, prototypes)):
        torch.testing.assert_close(even, torch.full((3, 5), 1 / 3, dtype=torch.float64))


def test_the_divergence_is_zero_for_the_standard_normal_alone_and_known_elsewhere():
    zero, one = torch.zeros(2, 3, 20, dtype=torch.float64), torch.ones(2, 3, 20, dtype=torch.float64)
    assert divergence(zero, one).item() == 0
    assert divergence(zero + 0.1, one).item() > 0
    assert divergence(zero, one * 1.1).item() > 0
    assert divergence(zero, one / 2).item() == pytest.approx(6.362944, abs=1e-6)
    assert math.isfinite(divergence(zero, zero).item())


def test_the_contrastive_loss_has_its_known_values():
    one = rows64(1, 1, 6)
    assert aspect_contrast(one, one, 0.2).item() == pytest.approx(math.log(2), abs=1e-12)
    same = rows64(1, 1, 6).expand(4, 5, 6)
    assert aspect_contrast(same, same, 0.2).item() == pytest.approx(4 * math.log(4 + 5), abs=1e-12)
    orthonormal = torch.eye(4, dtype=torch.float64).view(2, 2, 4)
    assert aspect_contrast(orthonormal, orthonormal, 0.2).item() == pytest.approx(1.399725, abs=1e-6)


def test_the_contrastive_loss_does_not_see_lengths():
    z, v = rows64(3, 4, 5), rows64(3, 4, 5, seed=1)
    scales = rows64(3, 4, 1, seed=2).exp()
    expected = aspect_contrast(z, v, 0.2)
    torch.testing.assert_close(aspect_contrast(z * scales, v, 0.2), expected)
    torch.testing.assert_close(aspect_contrast(z, v * scales, 0.2), expected)


def test_without_noise_training_reconstructs_what_answers_score(graph):
    network = network_of().double()
    with torch.no_grad():
        means = network.scorer(graph).parts.items
        network.items.latents.copy_(means)  # which do not depend on what they replace
        scorer = network.scorer(graph)
        y = scorer.scores(torch.arange(N))
        z, rows = scorer.parts.users, BinaryRows.of(graph.distinct(), torch.arange(N))
        x = torch.zeros(N, M, dtype=torch.float64)
        x[rows.rows, rows.columns] = 1
        other = Opposite(means, network.items.decode(means))
        attention = aspect_attention(means, network.users.prototypes)
        likelihood, _ = decode(z, network.users.decode(z), attention, other, rows, likelihood_of("poisson"))
    expected = (x * (y + 1e-10).log() - y).sum(1).mean()
    torch.testing.assert_close(likelihood, expected)


def test_turning_the_matrix_over_exchanges_the_sides(graph):
    turned = BipartiteGraph.from_interactions(Interactions.from_indices(LOG.items, LOG.users, M, N))
    network, mirror = network_of(), network_of(seed=1, sizes=(M, N))
    mirror.users.load_state_dict(network.items.state_dict())
    mirror.items.load_state_dict(network.users.state_dict())
    by_user = network.loss(graph, batch_of([0, 3, 2]))
    torch.testing.assert_close(mirror.loss(turned, batch_of([M, M + 3, M + 2])), by_user)
    by_item = network.loss(graph, batch_of([N + 1, N + 4]))
    torch.testing.assert_close(mirror.loss(turned, batch_of([1, 4])), by_item)
    assert not torch.allclose(by_user, by_item)


@pytest.mark.parametrize("side", ["users", "items"])
@pytest.mark.parametrize("train_prototypes", [False, True])
def test_a_phase_moves_its_own_side_alone(graph, side, train_prototypes):
    loop = loop_of(graph, train_prototypes=train_prototypes)
    nodes, others = (USERS, ITEMS) if side == "users" else (ITEMS, USERS)
    loop.one_step(torch.tensor(list(others)))  # so that the other side has moments that could still carry it
    before, moments = copy_of(loop.network.state_dict()), copy_of(loop.optimizer.tensors())
    loop.one_step(torch.tensor(list(nodes)[:4]))
    after = loop.network.state_dict()
    moved = {f"{side}.{name}" for name, _ in loop.network.users.named_parameters()} | {f"{side}.latents"}
    assert changed(before, after) == (moved if train_prototypes else moved - {f"{side}.prototypes"})
    assert not changed(moments, loop.optimizer.tensors())
    chosen = after[f"{side}.latents"] != before[f"{side}.latents"]
    assert bool(chosen[:, :4].all())
    assert not bool(chosen[:, 4:].any())


def test_the_latents_are_sampled_after_the_step_with_noise_of_their_own(graph):
    loop, nodes = loop_of(graph), torch.arange(4)
    loop.one_step(nodes)
    network = loop.network
    rows = BinaryRows.of(graph.distinct(), nodes)
    attention = aspect_attention(network.items.latents, network.users.prototypes)
    with torch.no_grad():
        mean, scale = network.users.encode(rows, attention)  # of the encoder as the step left it
    noise = (network.users.latents[:, :4] - mean) / scale
    again = loop_of(graph)
    again.one_step(nodes)
    assert torch.equal(again.network.users.latents, network.users.latents)
    other = loop_of(graph, seed=1)
    other.one_step(nodes)
    assert not torch.equal(other.network.users.latents, network.users.latents)
    assert 0.4 < noise.std().item() < 1.8


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "gaussian", "multinomial"])
@pytest.mark.parametrize("nodes", [USERS[:5], ITEMS[:4]])
def test_gradients_are_finite_differences_of_the_loss(graph, likelihood, nodes):
    network = network_of(
        likelihood=likelihood, train_prototypes=True, cl_weight=0.5, activation="elu", weight_decay=0.3
    ).double()
    side = network.users if nodes[0] < N else network.items
    with torch.no_grad():
        for latents in (network.users.latents, network.items.latents):
            latents.mul_(50)  # so that attention and contrastive loss matter
    batch = batch_of(nodes)
    network.loss(graph, batch).backward()
    for name, parameter in side.named_parameters():
        direction = rows64(*parameter.shape, seed=5)
        step, values = 1e-6, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step * direction)
                values.append(network.loss(graph, batch).item())
                parameter.sub_(sign * step * direction)
        slope = (values[0] - values[1]) / (2 * step)
        assert (parameter.grad * direction).sum().item() == pytest.approx(slope, rel=1e-4, abs=1e-6), name


def test_an_epoch_visits_items_then_users_that_have_an_interaction_in_order():
    log = Interactions.from_indices([0, 2, 2, 4, 4], [1, 1, 1, 3, 0], 6, 5)
    batches = network_of(sizes=(6, 5), batch_size=2).batches(BipartiteGraph.from_interactions(log), 1)
    assert [batch.tolist() for batch in batches] == [[6, 7], [9], [0, 2], [4]]


def test_shuffling_depends_on_seed_and_epoch_alone(graph):
    def order(seed, epoch):
        return torch.cat(list(network_of(seed, shuffle=True).batches(graph, epoch))).tolist()

    first = order(0, 1)
    assert first == order(0, 1)
    assert first != order(0, 2)
    assert first != order(1, 1)
    assert set(first[:M]) == set(ITEMS)
    assert set(first[M:]) == set(USERS)


def test_constants_of_a_phase_are_those_of_the_state_that_was_loaded(graph):
    network, other = network_of(), network_of(seed=1)
    network.loss(graph, batch_of([0, 1]))
    network.load_state_dict(other.state_dict())
    assert torch.equal(network.loss(graph, batch_of([0, 1])), other.loss(graph, batch_of([0, 1])))


@pytest.mark.parametrize("train_prototypes", [False, True])
def test_prototypes_are_learned_only_if_asked_for(train_prototypes):
    model = DualVAE(**SMALL, epochs=2, learning_rate=0.05, train_prototypes=train_prototypes).fit(LOG)
    initial = network_of().state_dict()
    for name in ("users.prototypes", "items.prototypes"):
        assert torch.equal(model.parameters()[name], initial[name]) != train_prototypes


def test_whoever_has_no_interaction_has_latents_of_zero_and_items_without_one_share_a_score():
    log = Interactions.from_indices([0, 2, 2, 4, 4], [1, 1, 1, 3, 0], 6, 5)
    scorer = DualVAE(**SMALL, epochs=2).fit(log).recommender.scorer
    assert not scorer.parts.users[:, [1, 3, 5]].any()
    assert not scorer.parts.items[:, [2, 4]].any()
    assert not scorer.parts.attention[:, [2, 4]].any()
    scores = scorer.scores(torch.arange(6))
    assert torch.equal(scores[:, 2], scores[:, 4])


def test_duplicates_count_once():
    twice = Interactions.from_indices(np.tile(LOG.users, 2), np.tile(LOG.items, 2), N, M)
    scores = [DualVAE(**SMALL, epochs=2).fit(log).recommender.scorer.scores(torch.arange(N)) for log in (LOG, twice)]
    assert torch.equal(*scores)


@pytest.mark.parametrize("settings", [{}, {"row_scale": "root", "dropout": 0.3}])
def test_a_training_users_history_gives_the_trained_scores_back(settings):
    model = DualVAE(**{**SMALL, **settings}, epochs=3, learning_rate=0.05).fit(LOG)
    scorer = model.recommender.scorer
    folded = scorer.for_histories(Histories.of(LOG.users, LOG.items, N))
    torch.testing.assert_close(folded.parts.users, scorer.parts.users, atol=1e-5, rtol=0)
    torch.testing.assert_close(folded.scores(torch.arange(N)), scorer.scores(torch.arange(N)), atol=1e-5, rtol=0)
    with pytest.raises(NotSupportedError, match="are not a sum over a user's history"):
        model.explain(0, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shuffle": True, "train_prototypes": True, "likelihood": "multinomial"},
        {"row_scale": "root", "dropout": 0.5},
    ],
)
def test_a_run_cut_off_continues_to_the_same_bits(tmp_path, settings):
    options = {**SMALL, "tune": False, "epochs": 6, "validate_every": 2, "learning_rate": 0.02, **settings}
    valid = random_log(N, M, 12, seed=1)
    whole = DualVAE(**options).fit(LOG, valid)

    class Stop(Exception):
        pass

    def stop(event):
        if event["epoch"] == 5:
            raise Stop

    with pytest.raises(Stop):
        DualVAE(**options).fit(LOG, valid, run_folder=tmp_path, on_event=stop)
    resumed = DualVAE(**options).fit(LOG, valid, run_folder=tmp_path, resume=True)
    for name, value in whole.parameters().items():
        assert torch.equal(value, resumed.parameters()[name]), name
    assert [event.get("ndcg@20") for event in resumed.log] == [event.get("ndcg@20") for event in whole.log]


def test_save_and_load_keep_scores_folding_in_and_similar_items(tmp_path):
    model = DualVAE(**{**SMALL, "row_scale": "root"}, epochs=2, activation="relu", likelihood="multinomial").fit(LOG)
    model.save(tmp_path / "run")
    again = DualVAE.load(tmp_path / "run")
    assert again.recommend(histories={"new": [0, 3]}, k=3).table.equals(
        model.recommend(histories={"new": [0, 3]}, k=3).table
    )
    assert again.similar_items(2, k=3).table.equals(model.similar_items(2, k=3).table)
    everyone = torch.arange(N)
    assert torch.equal(again.recommender.scorer.scores(everyone), model.recommender.scorer.scores(everyone))


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "gaussian", "multinomial"])
def test_training_lowers_the_loss(likelihood):
    model = DualVAE(**SMALL, epochs=15, learning_rate=0.05, likelihood=likelihood).fit(LOG)
    losses = [event["loss"] for event in model.log]
    assert np.mean(losses[-3:]) < 0.95 * losses[0]


@pytest.mark.parametrize("likelihood", ["poisson", "bernoulli", "gaussian"])
@pytest.mark.parametrize("settings", [{}, {"train_prototypes": True}, {"row_scale": "root", "dropout": 0.5}])
def test_items_without_an_interaction_are_not_there(graph, likelihood, settings):
    """Two more items that nobody touched leave the loss of users and its gradients as they were, and come last."""
    wider = BipartiteGraph.from_interactions(Interactions.from_indices(LOG.users, LOG.items, N, M + 2))
    network = network_of(likelihood=likelihood, **settings)
    wide = network_of(sizes=(N, M + 2), likelihood=likelihood, **settings)
    wide.items.load_state_dict(
        network.items.state_dict() | {"latents": torch.cat([network.items.latents, torch.randn(2, 2, 3)], dim=1)}
    )
    users = network.users.state_dict()
    wide.users.load_state_dict(users | {"table": torch.cat([users["table"], torch.randn(2, 4)])})
    losses = [each.loss(where, batch_of(USERS)) for each, where in ((network, graph), (wide, wider))]
    torch.testing.assert_close(losses[1], losses[0])
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(wide.users.table.grad[:M], network.users.table.grad)
    assert not wide.users.table.grad[M:].any()
    with torch.no_grad():
        scores = wide.scorer(wider).scores(torch.arange(N))
    torch.testing.assert_close(scores[:, :M], network.scorer(graph).scores(torch.arange(N)))
    assert float(scores[:, M:].max()) == 0.0 < float(scores[:, :M].min())


def test_dropout_hides_its_fraction_from_the_encoder_alone_and_keeps_sums_on_average(graph):
    side = network_of(dropout=0.4, row_scale="root").users.double()
    rows, attention = BinaryRows.of(graph.distinct(), torch.arange(N)), torch.full((2, M), 0.5, dtype=torch.float64)
    side.activation = lambda sums: sums  # straight, so that averages go through
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        means = torch.stack([side.encode(rows, attention, generator)[0] for _ in range(4000)])
        whole = side.encode(rows, attention)[0]
        x = torch.zeros(N, M, dtype=torch.float64).index_put_((rows.rows, rows.columns), torch.ones(1).double())
        hidden = 0.5 * (x / x.sum(1, keepdim=True).clamp(min=1).sqrt()) @ side.table + side.bias
        torch.testing.assert_close(whole[0], side.mean(hidden))
    error = means.std(0) / 4000**0.5
    assert bool(((means.mean(0) - whole).abs() <= 5 * error + 1e-9).all())
    assert float(means.std(0).max()) > 0.05


def test_an_initialization_from_factors_ranks_before_any_step_and_is_near_the_density():
    """The means of a log with two separate groups find the group; random weights do not."""
    users, items = np.divmod(np.arange(6400), 80)
    keep = (users % 2 == items % 2) & (np.random.default_rng(0).random(6400) < 0.8)
    log = Interactions.from_indices(users[keep], items[keep])
    graph = BipartiteGraph.from_interactions(log)
    own = (users % 2 == items % 2).reshape(80, 80)
    gaps = {}
    for initialization in ("normal", "least-squares"):
        for row_scale in ("sum", "root"):
            small = {"num_aspects": 2, "embedding_dim": 8, "hidden_dim": 8, "decoder_dim": 4}
            network = DualVAENetwork(
                80, 80, DualVAESettings(initialization=initialization, row_scale=row_scale, seed=0, **small)
            )
            network.initialize(graph)
            with torch.no_grad():
                scores = network.scorer(graph).scores(torch.arange(80)).numpy()
            gaps[initialization, row_scale] = scores[own].mean() / scores[~own].mean()
            if initialization == "least-squares":
                assert 0.5 < scores.mean() / (own.mean() * 0.8) < 2
    assert min(gap for (kind, _), gap in gaps.items() if kind == "least-squares") > 5
    assert max(gap for (kind, _), gap in gaps.items() if kind == "normal") < 1.1


@pytest.mark.parametrize("pairs", [[(0, 0)], [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (0, 1), (1, 0)]])
def test_an_initialization_from_factors_stands_a_log_too_small_or_too_full_for_them(pairs):
    users, items = np.array(pairs).T
    model = DualVAE(initialization="least-squares", epochs=1, embedding_dim=2, hidden_dim=3).fit(
        Interactions.from_indices(users, items)
    )
    assert len(model.recommend([0], k=1, include_seen=True).table) == 1


def test_an_initialization_from_factors_needs_room_for_the_level():
    with pytest.raises(ConfigError, match="embedding_dim and hidden_dim of at least 2, not 64 and 1"):
        DualVAE(initialization="least-squares", hidden_dim=1)
