"""Users from histories: exact for those who were trained, bounded in memory, and a sum of parts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.errors import DataError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import RankAttention, rank_attention
from rankformer.layers.light_propagation import neighbour_means
from rankformer.layers.rank_weights import RankWeights
from rankformer.models.fold_in_rules import mean_rule, rank_rule
from rankformer.models.lightgcn import LightGCNNetwork, LightGCNSettings
from rankformer.models.rankformer_cl import RankformerCLNetwork, RankformerCLSettings
from rankformer.models.xsimgcl import XSimGCLNetwork, XSimGCLSettings
from rankformer.scoring import fold_in
from rankformer.scoring import histories as histories_module
from rankformer.scoring.fold_in import Constant, LeastSquares, RankFoldIn, WeightedSum, check_tensors, embed
from rankformer.scoring.histories import Histories

KINDS = {
    "paper": RankWeights(),
    "small offset": RankWeights(alpha=0.3),
    "no offset": RankWeights(alpha=0.0),
    "small offset, small floor": RankWeights(alpha=0.3, floor=1e-3),
    "no benchmark": RankWeights(benchmark=False),
    "no negatives": RankWeights(negatives="none"),
    "no normalisation": RankWeights(normalize=False),
    "lightgcn": RankWeights.lightgcn(),
    "gat": RankWeights.gat(),
    "transformer": RankWeights.transformer(),
}


def graph_of(interactions, num_users=7, num_items=6):
    users, items = np.array(interactions).T
    return BipartiteGraph.from_interactions(
        Interactions.from_indices(users, items, num_users, num_items), dtype=torch.float64
    )


# User 0 has every item, user 5 none, user 1 one item twice; item 5 is touched by user 0 alone.
LOG = [(0, i) for i in range(6)] + [(1, 2), (1, 2), (2, 0), (2, 1), (3, 4), (3, 2), (4, 3), (6, 0), (6, 4), (6, 1)]


def histories_of(graph):
    items = graph.edge_items.numpy() - graph.num_users
    return Histories.of(graph.edge_users.numpy(), items, graph.num_users)


def trained(graph, weights, num_layers=3, tau=0.4, seed=0):
    """Embeddings of a Rankformer stack over a random table, and its rule."""
    table = torch.randn(graph.num_nodes, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    v = neighbour_means(graph, table)
    layers = [RankAttention(tau, weights) for _ in range(num_layers)]
    rule = rank_rule(graph, mean_rule(graph, table), v, layers)
    for _ in range(num_layers):
        v = rank_attention(graph, v, weights, tau)
    return v, rule


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_users_history_gives_back_its_trained_embedding(kind):
    graph = graph_of(LOG)
    v, rule = trained(graph, KINDS[kind])
    embedded = embed(rule, histories_of(graph))
    torch.testing.assert_close(embedded, v[: graph.num_users], rtol=1e-10, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    interactions=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=40),
    kind=st.sampled_from(sorted(KINDS)),
    num_layers=st.integers(0, 3),
    tau=st.floats(0, 1),
)
def test_the_same_on_any_graph(interactions, kind, num_layers, tau):
    graph = graph_of(interactions)
    v, rule = trained(graph, KINDS[kind], num_layers, tau)
    # Unnormalised embeddings can be large, so the tolerance is relative to the largest.
    size = float(v.abs().max())
    torch.testing.assert_close(embed(rule, histories_of(graph)), v[:7], rtol=0, atol=1e-9 * (1 + size))


def test_a_new_user_gets_what_a_training_user_with_that_history_would_get_against_the_same_items():
    graph = graph_of(LOG)
    v, rule = trained(graph, RankWeights())
    twin = embed(rule, Histories.of(np.array([0, 0, 0]), np.array([4, 0, 1]), 1))
    torch.testing.assert_close(twin[0], v[6], rtol=1e-10, atol=1e-10)


def test_pieces_do_not_change_the_answer(monkeypatch):
    graph = graph_of(LOG)
    _, rule = trained(graph, RankWeights())
    histories = histories_of(graph)
    whole = embed(rule, histories)
    for size in (1, 2, 5, 7):
        monkeypatch.setattr(histories_module, "_ENTRIES_AT_ONCE", size)
        pieces = list(histories.pieces())
        assert sum(piece.num_users for piece in pieces) == histories.num_users
        assert max(len(piece.items) for piece in pieces) <= max(size, 6)  # user 0 has six entries
        torch.testing.assert_close(embed(rule, histories), whole, rtol=0, atol=1e-14)


def test_parts_belong_to_their_items():
    """Raising one item's embedding in every layer, weights held, moves only that item's part."""
    graph = graph_of(LOG)
    _, rule = trained(graph, RankWeights.lightgcn(), num_layers=2)  # weights that do not depend on the embeddings
    histories = Histories.of(np.array([0, 0]), np.array([1, 3]), 1)
    before = rule.split(histories)
    moved = WeightedSum(rule.start.vectors.clone(), 1.0)
    moved.vectors[3] += 1
    states = tuple(state.clone() for state in rule.states)
    for state in states:
        state[3] += 1
    after = RankFoldIn(moved, states, rule.weights, rule.tau).split(histories)
    torch.testing.assert_close(after.parts[0], before.parts[0])
    assert float((after.parts[1] - before.parts[1]).abs().min()) > 0.1
    torch.testing.assert_close(after.rest, before.rest)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_lightgcn_folds_in_all_but_the_users_own_embedding(num_layers):
    graph = graph_of(LOG)
    network = LightGCNNetwork(7, 6, LightGCNSettings(num_layers=num_layers, embedding_dim=4)).double()
    rule = network.fold_in(graph)
    assert rule.own_embedding
    own = network.table.detach()[:7] / (num_layers + 1)
    # The user's own embedding also reaches its items and comes back; those items are frozen, so it is in them.
    expected = network.scorer(graph).users.detach() - own
    torch.testing.assert_close(embed(rule, histories_of(graph)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        XSimGCLNetwork(7, 6, XSimGCLSettings(num_layers=1, embedding_dim=4)),
        XSimGCLNetwork(7, 6, XSimGCLSettings(num_layers=3, embedding_dim=4)),
        RankformerCLNetwork(7, 6, RankformerCLSettings(num_layers=0, embedding_dim=4)),
        RankformerCLNetwork(7, 6, RankformerCLSettings(num_layers=3, embedding_dim=4)),
    ],
)
def test_contrastive_networks_give_back_the_trained_embeddings(network):
    graph = graph_of(LOG)
    network = network.double()
    with torch.no_grad():
        rule, users = network.fold_in(graph), network.scorer(graph).users
    torch.testing.assert_close(embed(rule, histories_of(graph)), users, rtol=1e-10, atol=1e-12)


def test_lightgcn_without_layers_has_no_rule():
    graph = graph_of(LOG)
    network = LightGCNNetwork(7, 6, LightGCNSettings(num_layers=0, embedding_dim=4))
    assert network.fold_in(graph) is None


def test_popularity_knows_every_user():
    histories = Histories.of(np.array([1, 1]), np.array([0, 2]), 3)
    torch.testing.assert_close(embed(Constant(torch.ones(1, 1)), histories), torch.ones(3, 1, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["paper", "small offset"])
def test_a_rule_survives_its_tensors_and_metadata(kind):
    graph = graph_of(LOG)
    _, rule = trained(graph, KINDS[kind])
    again = RankFoldIn.restore(rule.tensors(), rule.metadata())
    histories = histories_of(graph)
    assert torch.equal(embed(again, histories), embed(rule, histories))
    summed = WeightedSum(torch.rand(6, 2), 0.5, own_embedding=True)
    back = WeightedSum.restore(summed.tensors(), summed.metadata())
    assert back.own_embedding
    assert torch.equal(embed(back, histories), embed(summed, histories))


def test_tensors_that_do_not_fit_are_rejected():
    good = torch.zeros(6, 2)
    check_tensors({"a": good, "b": torch.zeros(1, 2)}, 6, 2)
    for bad in (torch.zeros(5, 2), torch.zeros(6, 3), torch.zeros(6), good + float("nan"), good.int()):
        with pytest.raises(DataError, match="fold-in tensor a"):
            check_tensors({"a": bad}, 6, 2)
    with pytest.raises(DataError, match=r"start, layer\.0"):
        RankFoldIn.restore({"start": good, "layer.1": good}, {"power": 1, "tau": 0.5, "weights": {}})


# Least squares: one small system per user, however users are batched.
ITEMS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
# User 0 has nothing, user 1 one item, user 2 one of them twice, user 3 all, user 5 nothing.
SOLVED_PAIRS = [(1, 4), (2, 0), (2, 0), (2, 7), *[(3, item) for item in range(9)], (4, 2), (4, 8)]
SOLVED_HISTORIES = Histories.of(*np.array(SOLVED_PAIRS).T, 6)


def solved_one_by_one(weight, regularization):
    q = ITEMS.double()
    rows = []
    for user in range(6):
        history = q[[item for owner, item in SOLVED_PAIRS if owner == user]]
        matrix = q.T @ q + regularization * torch.eye(4).double() + (weight - 1) * history.T @ history
        rows.append(torch.linalg.solve(matrix, weight * history.sum(0)))
    return torch.stack(rows)


@pytest.mark.parametrize("weight", [1.0, 7.5])
@pytest.mark.parametrize("at_once", [1, 200, 1 << 21])
def test_each_user_solves_its_own_system(monkeypatch, weight, at_once):
    monkeypatch.setattr(fold_in, "_NUMBERS_AT_ONCE", at_once)
    rows = embed(LeastSquares(ITEMS, weight, 0.3), SOLVED_HISTORIES)
    torch.testing.assert_close(rows, solved_one_by_one(weight, 0.3), rtol=1e-10, atol=1e-12)


def test_a_part_lies_along_the_solution_for_its_item_alone():
    rule = LeastSquares(ITEMS, 5.0, 0.3)
    parts = rule.split(SOLVED_HISTORIES).parts
    q, history = ITEMS.double(), ITEMS.double()[[0, 0, 7]]  # of user 2
    matrix = q.T @ q + 0.3 * torch.eye(4).double() + 4.0 * history.T @ history
    torch.testing.assert_close(parts[1:4] @ matrix, 5.0 * history, rtol=1e-10, atol=1e-12)


def test_least_squares_survive_their_tensors_and_metadata():
    rule = LeastSquares(ITEMS, 5.0, 0.3)
    again = LeastSquares.restore(rule.tensors(), rule.metadata())
    assert torch.equal(embed(again, SOLVED_HISTORIES), embed(rule, SOLVED_HISTORIES))


@pytest.mark.parametrize(
    ("weight", "regularization"), [(0.5, 1), (1, 0), (1, -1), (float("nan"), 1), (2, float("inf"))]
)
def test_numbers_without_a_solution_are_rejected(weight, regularization):
    numbers = {"weight": weight, "regularization": regularization, "offset": 0.0, "exponent": 0.0}
    with pytest.raises(
        DataError, match=r"a weight from 1 and a regularization above 0|(weight|regularization) is .*expected a number"
    ):
        LeastSquares.restore({"vectors": ITEMS}, numbers)


@pytest.mark.parametrize(("offset", "exponent"), [(-1, 0), (0, -1), (float("nan"), 0), (0, float("inf"))])
def test_a_frequency_scaling_that_cannot_be_is_rejected(offset, exponent):
    numbers = {"weight": 2.0, "regularization": 1.0, "offset": offset, "exponent": exponent}
    with pytest.raises(DataError, match=r"offset and an exponent from 0|(offset|exponent) is .*expected a number"):
        LeastSquares.restore({"vectors": ITEMS}, numbers)


def weighted(histories, weights):
    return histories._replace(weights=torch.as_tensor(weights, dtype=torch.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_users_weighted_history_gives_back_its_trained_embedding(kind):
    users, items = np.array(LOG).T
    weights = np.random.default_rng(0).uniform(0.1, 9, len(LOG))
    graph = BipartiteGraph.from_pairs(users, items, 7, 6, weights=weights, dtype=torch.float64)
    v, rule = trained(graph, KINDS[kind])
    histories = histories_of(graph)._replace(weights=graph.edge_weights)
    torch.testing.assert_close(embed(rule, histories), v[:7], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("at_once", [200, 1 << 21])
def test_integer_weights_are_repeated_entries_of_least_squares_and_of_sums(monkeypatch, exponent, at_once):
    monkeypatch.setattr(fold_in, "_NUMBERS_AT_ONCE", at_once)
    times = np.array([3, 1, 2, 1, *[1, 2, 3] * 3, 5, 1])
    pairs = np.repeat(np.array(SOLVED_PAIRS), times, axis=0)
    repeated = Histories.of(*pairs.T, 6)
    for rule in (LeastSquares(ITEMS, 7.5, 0.3, 1.5, exponent), WeightedSum(ITEMS, 0.5), WeightedSum(ITEMS, 1.0)):
        found = embed(rule, weighted(SOLVED_HISTORIES, times))
        torch.testing.assert_close(found, embed(rule, repeated), rtol=1e-9, atol=1e-11)


def test_parts_carry_their_weight_and_pieces_keep_it(monkeypatch):
    histories = weighted(SOLVED_HISTORIES, np.linspace(0.1, 3, len(SOLVED_PAIRS)))
    for rule in (LeastSquares(ITEMS, 7.5, 0.3), WeightedSum(ITEMS, 0.5)):
        parts, rest = rule.split(histories)
        whole = embed(rule, histories)
        torch.testing.assert_close(rest.index_add(0, histories.users, parts), whole)
        with monkeypatch.context() as patched:
            patched.setattr(histories_module, "_ENTRIES_AT_ONCE", 2)
            torch.testing.assert_close(embed(rule, histories), whole)
