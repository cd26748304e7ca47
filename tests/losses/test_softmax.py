"""The softmax losses: full batch and mini-batch against the formula, the weights of softmax-at-k, and scoring."""

import math

import pytest
import torch

from rankformer.errors import ConfigError
from rankformer.graph.batch import Triples
from rankformer.losses import RANKING_LOSSES
from rankformer.losses.settings import LossSettings
from rankformer.losses.softmax import softmax, softmax_at_k
from rankformer.models.lightgcn import LightGCNNetwork, LightGCNSettings
from rankformer.models.rankformer import Rankformer, RankformerSettings

from ..logs import random_log
from .test_bpr import GRAPHS, all_triples, graph_of, rows_of


@pytest.fixture(params=GRAPHS)
def graph(request):
    return graph_of(GRAPHS[request.param])


def unit(z):
    return torch.nn.functional.normalize(z, dim=1)


def shared(triples, count):
    count = min(count, len(triples))
    return torch.stack([triples.negatives[k * len(triples) // count] for k in range(count)]).long()


def by_formula(z, triples, settings, weights=None):
    """The loss interaction by interaction."""
    x, t = unit(z), settings.loss_temperature
    sample, terms = shared(triples, settings.loss_negatives), []
    for e in range(len(triples)):
        u, i = int(triples.users[e]), int(triples.positives[e])
        push = torch.logsumexp(x[u] @ x[sample].T / t, 0)
        term = settings.loss_push * push - x[u] @ x[i] / t
        terms.append(term if weights is None else weights[e] * term)
    return torch.stack(terms).mean()


def best_score(z, triples, graph, settings, user):
    """The score at which the user's items make up K, each of the sample standing for several."""
    x, sample = unit(z), shared(triples, settings.loss_negatives)
    own = triples.positives[triples.users == user].long()
    each = max(1.0, (graph.num_items - len(own)) / len(sample))
    held = sorted([(float(x[user] @ x[i]), 1.0) for i in own] + [(float(x[user] @ x[j]), each) for j in sample])
    total = 0.0
    for score, count in reversed(held):
        total += count
        if total >= settings.loss_cutoff - 1e-6:
            return score
    return held[0][0]


def value_and_gradient(loss, z):
    z = z.clone().requires_grad_()
    value = loss(z)
    (value * 3).backward()  # not 1, so that a backward that ignores its gradient shows
    return value.detach(), z.grad


@pytest.mark.parametrize(
    "settings",
    [
        LossSettings(),
        LossSettings(loss_negatives=3, loss_temperature=0.01),  # exponents beyond float32
        LossSettings(loss_push=0.7, loss_temperature=1.0),
    ],
    ids=["default", "few negatives", "balanced"],
)
def test_every_form_has_the_values_and_gradients_of_the_formula(graph, settings):
    z = rows_of(graph, 1)
    full, plain = all_triples(graph)
    wanted = value_and_gradient(lambda rows: by_formula(rows, plain, settings), z)
    for triples in (full, plain):
        got = value_and_gradient(lambda rows, t=triples: softmax(rows, t, settings), z)
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cutoff", [1, 2, 4])
def test_softmax_at_k_weighs_each_interaction_by_its_distance_to_the_users_best(graph, cutoff):
    settings = LossSettings(loss_cutoff=cutoff, loss_cutoff_temperature=0.3, loss_negatives=5)
    z = rows_of(graph, 2)
    full, plain = all_triples(graph)
    limits = {int(u): best_score(z, plain, graph, settings, u) for u in plain.users.unique()}
    x = unit(z)
    cosines = (x[plain.users.long()] * x[plain.positives.long()]).sum(1)
    beta = torch.tensor([limits[int(u)] for u in plain.users], dtype=z.dtype)
    weights = torch.sigmoid((cosines - beta) / 0.3)
    wanted = value_and_gradient(lambda rows: by_formula(rows, plain, settings, weights), z)
    got = value_and_gradient(lambda rows: softmax_at_k(rows, full, settings), z)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_softmax_at_k_of_a_batch_has_weights_between_zero_and_one():
    graph, settings = graph_of(GRAPHS["parallel edges"]), LossSettings()
    _, triples = all_triples(graph)
    z = rows_of(graph, 3)
    some = Triples(triples.users[::2], triples.positives[::2], triples.negatives[::2])
    assert 0 < softmax_at_k(z, some, settings) < softmax(z, some, settings)


@pytest.mark.parametrize("loss", [softmax, softmax_at_k])
def test_lengths_do_not_matter_and_zero_rows_are_finite(loss):
    graph, settings = graph_of(GRAPHS["plain"]), LossSettings()
    full, _ = all_triples(graph)
    z = rows_of(graph, 4)
    scale = torch.linspace(0.1, 9, graph.num_nodes, dtype=z.dtype)[:, None]
    torch.testing.assert_close(loss(z * scale, full, settings), loss(z, full, settings))
    z[::3] = 0
    value, gradient = value_and_gradient(lambda rows: loss(rows, full, settings), z)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
    assert (gradient[::3] == 0).all()


def test_equal_rows_cost_the_logarithm_of_the_sample():
    graph = graph_of(GRAPHS["plain"])
    full, _ = all_triples(graph)
    value = softmax(torch.ones(graph.num_nodes, 3, dtype=torch.float64), full, LossSettings(loss_negatives=7))
    assert value.item() == pytest.approx(math.log(7))


def test_no_array_of_all_pairs_or_of_interactions_by_dimensions_is_made():
    generator = torch.Generator().manual_seed(0)
    graph = graph_of((torch.rand(300, 200, generator=generator) < 0.2).int().numpy())
    full, _ = all_triples(graph)
    z = torch.randn(graph.num_nodes, 32, generator=generator).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        softmax(z, full, LossSettings(loss_negatives=16)).backward()
    largest = max(abs(event.self_cpu_memory_usage) for event in profile.events())
    assert largest < 4 * min(graph.num_users * graph.num_items, graph.num_edges * 32)


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_a_network_scores_by_what_its_loss_compares(exponent):
    graph = graph_of(GRAPHS["plain"])
    settings = LightGCNSettings(loss="softmax", norm_exponent=exponent, embedding_dim=4)
    network = LightGCNNetwork(graph.num_users, graph.num_items, settings)
    with torch.no_grad():
        z, scorer = network.propagate(graph), network.scorer(graph)
    n = graph.num_users
    assert torch.equal(scorer.users, z[:n])
    lengths = z[n:].norm(dim=1)
    cosines = unit(z[:n]) @ unit(z[n:]).T
    expected = cosines * z[:n].norm(dim=1)[:, None] * lengths**exponent
    torch.testing.assert_close(scorer.scores(torch.arange(n)), expected)


@pytest.mark.parametrize("loss", [name for name, each in RANKING_LOSSES.items() if each.by_cosine])
def test_fold_in_and_explanations_stay_exact_under_a_cosine_loss(loss):
    log = random_log()
    model = Rankformer(loss=loss, epochs=3, embedding_dim=8, num_layers=2).fit(log)
    user = int(log.users[0])
    history = [int(i) for i in log.items[log.users == user]]
    seen, new = model.recommend([user], k=5).to_dicts(), model.recommend(histories={"new": history}, k=5).to_dicts()
    assert [row["item_id"] for row in seen] == [row["item_id"] for row in new]
    assert [row["score"] for row in seen] == pytest.approx([row["score"] for row in new], rel=1e-4)
    found = model.explain(user, seen[0]["item_id"])
    total = sum(reason.contribution for reason in found.reasons) + found.user_contribution + found.global_contribution
    assert total == pytest.approx(found.score, abs=1e-5)


def test_the_setting_offers_every_registered_loss_and_no_other():
    for loss in RANKING_LOSSES:
        assert RankformerSettings(loss=loss).loss == loss
    with pytest.raises(ConfigError, match=r"bpr.*softmax"):
        RankformerSettings(loss="hinge")
