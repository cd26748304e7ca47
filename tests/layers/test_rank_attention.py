"""The linear form against the dense reference, and the invariants of the layer."""

from dataclasses import replace

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.data.interactions import Interactions
from rankformer.errors import ConfigError
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.layers import RankAttention, RankWeights, rank_attention, rank_attention_reference
from rankformer.layers.light_propagation import neighbour_means
from rankformer.layers.rank_attention_reference import count_matrix

VARIANTS = {
    "rankformer": RankWeights(),
    "large offset": RankWeights(alpha=3.5),
    "no negatives": RankWeights(negatives="none"),
    "no benchmark": RankWeights(benchmark=False),
    "no offset": RankWeights(alpha=0.0),
    "small offset": RankWeights(alpha=0.7),
    "no offset, no benchmark": RankWeights(alpha=0.0, benchmark=False),
    "no offset, small floor": RankWeights(alpha=0.0, floor=1e-3),  # sums above the floor pass their gradient on
    "small offset, small floor": RankWeights(alpha=0.7, floor=1e-3),
    "transformer, small floor": replace(RankWeights.transformer(), floor=1e-3),
    "curvature of BPR": RankWeights(curvature=-1),
    "curvature of BPR, small offset": RankWeights(curvature=-1, alpha=0.7, floor=1e-3),
    "curvature of BPR, transformer": replace(RankWeights.transformer(), curvature=-1, floor=1e-3),
    "no curvature": RankWeights(curvature=0),
    "no normalisation": RankWeights(normalize=False),
    "no similarity": RankWeights(similarity=False, benchmark=False),
    "lightgcn": RankWeights.lightgcn(),
    "gat": RankWeights.gat(),
    "transformer": RankWeights.transformer(),
}


def make_graph(users, items, n, m):
    return BipartiteGraph.from_interactions(Interactions.from_indices(users, items, n, m), dtype=torch.float64)


@st.composite
def graphs(draw, duplicates: bool):
    """Ragged graphs; user 0 has every item, user 1 none, item 0 of the last column may have none but user 0."""
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 8))
    counts = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 3 if duplicates else 1)))
    counts[1] = 0
    if draw(st.booleans()):
        counts[0] = 1
    if draw(st.booleans()):
        counts[:, -1] = 0
    if counts.sum() == 0:
        counts[0, 0] = 1
    users, items = np.nonzero(counts)
    reps = counts[users, items]
    return make_graph(np.repeat(users, reps), np.repeat(items, reps), n, m)


def exact_alpha(graph):
    """The smallest offset at which no absolute value of Eq. 8 can be active: 2 without parallel edges."""
    c = count_matrix(graph, torch.float64)
    e_u = (graph.num_items - graph.degree[: graph.num_users]).clamp(min=1)
    return 1 + float(((1 - c).abs().sum(1) / e_u).max().clamp(min=1))


def outputs_and_gradient(layer, z, probe):
    z = z.clone().requires_grad_()
    out = layer(z)
    (out * probe).sum().backward()
    return out.detach(), z.grad


def assert_same(graph, z, weights, tau, seed, estimate):
    probe = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(seed))
    fast = outputs_and_gradient(lambda v: rank_attention(graph, v, weights, tau), z, probe)
    slow = outputs_and_gradient(lambda v: rank_attention_reference(graph, v, weights, tau, estimate=estimate), z, probe)
    for got, wanted in zip(fast, slow, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def random_rows(graph, seed, d=5):
    return torch.randn(graph.num_nodes, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=150, deadline=None)
@given(graphs(duplicates=True), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 3))
def test_linear_form_equals_dense_equations_with_repeated_edges_and_degenerate_users(graph, seed, tau, extra):
    weights = RankWeights(alpha=exact_alpha(graph) + extra)
    assert_same(graph, random_rows(graph, seed), weights, tau, seed, estimate=False)


@settings(max_examples=100, deadline=None)
@given(graphs(duplicates=False), st.integers(0, 2**31))
def test_alpha_two_is_exact_without_repeats(graph, seed):
    assert_same(graph, random_rows(graph, seed), RankWeights(alpha=2.0), 0.4, seed, estimate=False)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(graph=graphs(duplicates=False), seed=st.integers(0, 2**31))
def test_every_variant_equals_the_reference_with_the_same_estimate(name, graph, seed):
    assert_same(graph, random_rows(graph, seed), VARIANTS[name], 0.6, seed, estimate=True)


@pytest.mark.parametrize("name", ["no negatives", "gat", "lightgcn", "no normalisation"])
@settings(max_examples=20, deadline=None)
@given(graph=graphs(duplicates=False), seed=st.integers(0, 2**31))
def test_variants_called_exact_are_exact(name, graph, seed):
    assert VARIANTS[name].exact_normalizer
    assert_same(graph, random_rows(graph, seed), VARIANTS[name], 0.6, seed, estimate=False)


def ragged_graph(n=30, m=40, size=260, seed=0):
    """Distinct random interactions; user 0 has none, user 1 every item, item 0 only user 1."""
    rng = np.random.default_rng(seed)
    positive = np.zeros((n, m), dtype=bool)
    positive[rng.integers(2, n, size), rng.integers(1, m, size)] = True
    positive[1] = True
    users, items = np.nonzero(positive)
    return make_graph(users, items, n, m)


@pytest.fixture
def threads():
    """A setter of torch's thread count that is undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", VARIANTS)
def test_step_size_zero_is_the_identity(name):
    graph = ragged_graph()
    z = random_rows(graph, 1)
    out, grad = outputs_and_gradient(lambda v: rank_attention(graph, v, VARIANTS[name], 0.0), z, random_rows(graph, 2))
    assert torch.equal(out, z)
    torch.testing.assert_close(grad, random_rows(graph, 2))


@pytest.mark.parametrize("name", VARIANTS)
def test_renumbering_users_and_items_renumbers_the_output(name):
    graph = ragged_graph()
    n, m = graph.num_users, graph.num_items
    new_user, new_item = (torch.randperm(size, generator=torch.Generator().manual_seed(3)) for size in (n, m))
    users, items = new_user[graph.edge_users.long()], new_item[graph.edge_items.long() - n]
    renumbered = make_graph(users.numpy(), items.numpy(), n, m)
    new_node = torch.cat([new_user, new_item + n])
    z, probe = random_rows(graph, 4), random_rows(graph, 5)
    moved_z, moved_probe = torch.empty_like(z), torch.empty_like(z)
    moved_z[new_node], moved_probe[new_node] = z, probe
    before = outputs_and_gradient(lambda v: rank_attention(graph, v, VARIANTS[name], 0.7), z, probe)
    after = outputs_and_gradient(lambda v: rank_attention(renumbered, v, VARIANTS[name], 0.7), moved_z, moved_probe)
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new[new_node], old)


@settings(max_examples=60, deadline=None)
@given(graphs(duplicates=False), st.integers(0, 2**31), st.floats(2, 5))
def test_rows_are_bounded_by_the_longest_row_in_reach(graph, seed, alpha):
    z, n = random_rows(graph, seed), graph.num_users
    out = rank_attention(graph, z, RankWeights(alpha=alpha), 1.0).norm(dim=1)
    assert out[:n].max() <= z[n:].norm(dim=1).max() * (1 + 1e-9)
    assert out[n:].max() <= z[:n].norm(dim=1).max() * (1 + 1e-9)


def test_without_negatives_only_neighbours_are_in_reach():
    graph = ragged_graph()
    z = random_rows(graph, 6)
    out = rank_attention(graph, z, RankWeights(negatives="none"), 1.0).norm(dim=1)
    for node in range(graph.num_nodes):
        near = graph.neighbours[graph.ptr[node] : graph.ptr[node + 1]].long()
        assert out[node] <= z[near].norm(dim=1).max().item() * (1 + 1e-9) if len(near) else out[node] == 0


def test_lightgcn_weights_are_row_normalised_propagation():
    graph = ragged_graph()
    z, n = random_rows(graph, 7), graph.num_users
    positive = count_matrix(graph, z.dtype)
    scaled = positive / positive.sum(1, keepdim=True).clamp(min=1)  # Omega+ = 1 / d_u
    wanted = torch.cat(
        [
            scaled @ z[n:] / scaled.sum(1, keepdim=True).clamp(min=1e-300),
            scaled.T @ z[:n] / scaled.sum(0)[:, None].clamp(min=1e-300),
        ]
    )
    torch.testing.assert_close(rank_attention(graph, z, RankWeights.lightgcn(), 1.0), wanted)
    torch.testing.assert_close(wanted[:n], neighbour_means(graph, z)[:n])


@settings(max_examples=40, deadline=None)
@given(graphs(duplicates=True), st.integers(0, 2**31))
def test_neighbour_means_have_the_values_and_gradients_of_the_dense_form(graph, seed):
    z, probe, n = random_rows(graph, seed), random_rows(graph, seed + 1), graph.num_users
    counts = count_matrix(graph, z.dtype)
    d_u, d_i = counts.sum(1).clamp(min=1)[:, None], counts.sum(0).clamp(min=1)[:, None]
    wanted = outputs_and_gradient(lambda v: torch.cat([counts @ v[n:] / d_u, counts.T @ v[:n] / d_i]), z, probe)
    got = outputs_and_gradient(lambda v: neighbour_means(graph, v), z, probe)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "rankformer"])
def test_every_variant_differs_from_the_default(name):
    graph = ragged_graph()
    z = random_rows(graph, 8)
    gap = rank_attention(graph, z, VARIANTS[name], 0.5) - rank_attention(graph, z, RankWeights(), 0.5)
    assert gap.abs().max() > 1e-3


@pytest.mark.parametrize("name", VARIANTS)
def test_a_user_row_comes_back_from_its_history_and_the_frozen_item_states(name):
    graph = ragged_graph()
    z, n, m, weights = random_rows(graph, 9), graph.num_users, graph.num_items, VARIANTS[name]
    states = [neighbour_means(graph, z)]
    for _ in range(3):
        states.append(rank_attention(graph, states[-1], weights, 0.4))
    for user in range(1, n):
        items = (graph.edge_items[graph.edge_users == user] - n).numpy()
        alone = make_graph(np.zeros_like(items), items, 1, m)
        row = neighbour_means(alone, torch.cat([z[:1], z[n:]]))[:1]
        for before in states[:-1]:
            row = rank_attention(alone, torch.cat([row, before[n:]]), weights, 0.4)[:1]
        torch.testing.assert_close(row[0], states[-1][user], msg=f"user {user}")


def test_another_thread_count_gives_equal_values(threads):
    graph = ragged_graph(300, 400, 20_000)
    z, probe = random_rows(graph, 10, d=32).float(), random_rows(graph, 11, d=32).float()
    results = []
    for count in (1, 2, 4):
        threads(count)
        results.append(outputs_and_gradient(lambda v: rank_attention(graph, v, tau=0.5), z, probe))
    for other in results[1:]:
        for got, wanted in zip(other, results[0], strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_the_same_threads_give_the_same_bits(threads):
    graph = ragged_graph(300, 400, 20_000)
    z, probe = random_rows(graph, 12, d=32).float(), random_rows(graph, 13, d=32).float()
    threads(2)
    first, *others = (outputs_and_gradient(lambda v: rank_attention(graph, v, tau=0.5), z, probe) for _ in range(4))
    for other in others:
        assert all(torch.equal(got, wanted) for got, wanted in zip(other, first, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_float32_agrees_with_the_float64_reference(name):
    graph = ragged_graph()
    z, probe, weights = random_rows(graph, 14), random_rows(graph, 15), VARIANTS[name]
    slow = outputs_and_gradient(lambda v: rank_attention_reference(graph, v, weights, 0.5, estimate=True), z, probe)
    fast = outputs_and_gradient(lambda v: rank_attention(graph, v, weights, 0.5), z.float(), probe.float())
    for got, wanted in zip(fast, slow, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-4)


def test_the_input_is_left_as_it_was():
    graph = ragged_graph()
    z = random_rows(graph, 16).requires_grad_()
    kept = z.detach().clone()
    rank_attention(graph, z, tau=0.5).sum().backward()
    assert torch.equal(z.detach(), kept)


def test_backward_twice_through_one_forward_gives_the_same_gradient():
    graph = ragged_graph()
    z = random_rows(graph, 17).requires_grad_()
    out = rank_attention(graph, z, tau=0.5)
    first, second = (torch.autograd.grad(out.square().sum(), z, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_zero_rows_stay_finite_in_value_and_gradient():
    graph = ragged_graph()
    z = random_rows(graph, 18)
    z[::3] = 0
    for weights in VARIANTS.values():
        out, grad = outputs_and_gradient(lambda v, w=weights: rank_attention(graph, v, w, 0.5), z, torch.ones_like(z))
        assert torch.isfinite(out).all()
        assert torch.isfinite(grad).all()


def test_the_module_is_the_function_and_has_nothing_to_learn():
    graph = ragged_graph()
    z, weights = random_rows(graph, 19), RankWeights(alpha=3.0)
    layer = RankAttention(0.3, weights)
    assert torch.equal(layer(graph, z), rank_attention(graph, z, weights, 0.3))
    assert list(layer.parameters()) == []
    assert "tau=0.3" in repr(layer)


def test_the_second_order_expansion_of_bpr_has_curvature_minus_one():
    """The gradient of the mean of mu/2 - mu^2/8 over a user's pairs, mu = s_i - s_j, is Omega z / 4 at alpha = 2."""
    graph = ragged_graph()
    z, n = random_rows(graph, 20), graph.num_users
    z = z / z.norm(dim=1, keepdim=True)  # so that similarities are inner products
    layer = rank_attention(graph, z, RankWeights(curvature=-1, normalize=False), 1.0)
    user = 5
    own = (graph.edge_items[graph.edge_users == user] - n).long()
    other = torch.tensor([item for item in range(graph.num_items) if item not in set(own.tolist())])
    row = z[user].clone().requires_grad_()
    mu = (z[n:][own] @ row)[:, None] - (z[n:][other] @ row)[None]
    (mu / 2 - mu.square() / 8).mean().backward()
    torch.testing.assert_close(layer[user] / 4, row.grad)


@pytest.mark.parametrize("tau", [-0.1, 1.1, float("nan")])
def test_a_step_size_outside_its_range_is_refused(tau):
    with pytest.raises(ConfigError, match="tau="):
        RankAttention(tau)


@pytest.mark.parametrize(
    ("settings_given", "complaint"),
    [
        ({"negatives": "shove"}, "push, none, pull"),
        ({"alpha": -1.0}, "alpha=-1.0"),
        ({"alpha": float("inf")}, "alpha=inf"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"negatives": "pull"}, "benchmark=False and alpha=0"),
        ({"negatives": "pull", "benchmark": False}, "alpha=0"),
        ({"negatives": "pull", "alpha": 0.0}, "benchmark=False"),
        ({"similarity": False}, "benchmark=False"),
        ({"curvature": 2}, "curvature=2"),
        ({"floor": 0.0}, "floor=0.0"),
        ({"floor": float("nan")}, "floor=nan"),
    ],
)
def test_weights_refuse_combinations_without_a_meaning(settings_given, complaint):
    with pytest.raises(ConfigError, match=complaint):
        RankWeights(**settings_given)


@st.composite
def weighted_graphs(draw):
    """Graphs without parallel edges whose edges weigh from a millionth to a thousand."""
    plain = draw(graphs(duplicates=False))
    powers = draw(hnp.arrays(np.float64, plain.num_edges, elements=st.floats(-6, 3)))
    users, items = plain.edge_users.numpy(), plain.edge_items.numpy() - plain.num_users
    size = plain.num_users, plain.num_items
    return BipartiteGraph.from_pairs(users, items, *size, weights=10.0**powers, dtype=torch.float64)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=40, deadline=None)
@given(graph=weighted_graphs(), seed=st.integers(0, 2**31))
def test_every_variant_equals_the_reference_on_weighted_edges(name, graph, seed):
    assert_same(graph, random_rows(graph, seed), VARIANTS[name], 0.6, seed, estimate=True)


@settings(max_examples=40, deadline=None)
@given(graph=weighted_graphs(), seed=st.integers(0, 2**31))
def test_alpha_two_is_exact_on_weighted_edges(graph, seed):
    assert_same(graph, random_rows(graph, seed), RankWeights(), 0.4, seed, estimate=False)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(duplicates=True), seed=st.integers(0, 2**31))
def test_equal_weights_of_any_size_change_nothing(graph, seed):
    z = random_rows(graph, seed)
    users, items = graph.edge_users.numpy(), graph.edge_items.numpy() - graph.num_users
    size, weights = (graph.num_users, graph.num_items), np.full(graph.num_edges, 7.5)
    heavy = BipartiteGraph.from_pairs(users, items, *size, weights=weights, dtype=torch.float64)
    probe = random_rows(graph, seed + 1)
    both = (outputs_and_gradient(lambda v, g=g: rank_attention(g, v, None, 0.5), z, probe) for g in (graph, heavy))
    for got, wanted in zip(*both, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_a_heavier_edge_pulls_harder():
    users, items, z = [0, 0, 1], [0, 1, 1], torch.eye(5, dtype=torch.float64)
    graph = BipartiteGraph.from_pairs(users, items, 2, 3, weights=[1.0, 4.0, 1.0], dtype=torch.float64)
    light, heavy = rank_attention(graph, z, RankWeights.lightgcn())[0, 2:4].tolist()
    assert heavy == pytest.approx(4 * light)
