"""Negatives: never a positive, uniform over the rest, and a pure function of (seed, step, edge)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from rankformer.data.interactions import Interactions
from rankformer.graph.bipartite import BipartiteGraph
from rankformer.graph.negatives import NegativeSampler, random_bits


def sampler_of(users, items, n, m):
    return NegativeSampler.of(BipartiteGraph.from_interactions(Interactions.from_indices(users, items, n, m)))


def random_sampler(n=200, m=90, size=4000, seed=0):
    rng = np.random.default_rng(seed)
    return sampler_of(rng.integers(0, n, size), rng.integers(0, m, size), n, m)


@pytest.fixture
def threads():
    """A setter of torch's thread count that is undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=40),
    st.integers(0, 2**40),
    st.integers(1, 10**9),
)
def test_a_negative_is_no_positive_anywhere_in_train_but_for_users_with_every_item(n, m, pairs, seed, step):
    users, items = [user % n for user, _ in pairs], [item % m for _, item in pairs]
    sampler = sampler_of(users, items, n, m)
    positives = set(zip(users, items, strict=True))
    graph = sampler.graph
    drawn = sampler.draw(seed, step) - n
    edges = zip(graph.edge_users.tolist(), (graph.edge_items - n).tolist(), drawn.tolist(), strict=True)
    for user, item, negative in edges:
        assert 0 <= negative < m
        if sum(1 for pair in positives if pair[0] == user) == m:
            assert negative == item, "a user with every item gets its own positive back"
        else:
            assert (user, negative) not in positives


def test_users_times_items_may_exceed_32_bits():
    # Users in two regions of the hash table, and more edges than are drawn at once.
    n = m = 70_000
    items = np.arange(0, m, 2)
    users = np.repeat([3, 40_000, 60_000, n - 1], len(items))
    sampler = sampler_of(users, np.tile(items, 4), n, m)
    drawn = sampler.draw(0, 1) - n
    assert (drawn % 2 == 1).all()
    assert ((drawn >= 0) & (drawn < m)).all()


def test_negatives_are_uniform_over_the_free_items():
    # Free items at the start, in the middle and at the end of the range, and parallel edges that must not count twice.
    histories = {0: [1, 4, 5, 11], 1: [0], 2: [0, 1, 2, 2, 2, 9, 10, 11], 3: [3, 3], 4: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}
    m = 12
    users = [user for user, items in histories.items() for _ in items]
    sampler = sampler_of(users, [item for items in histories.values() for item in items], 5, m)
    edge_users = sampler.graph.edge_users.long()
    counts = torch.zeros(5, m, dtype=torch.int64)
    for step in range(1, 4001):
        drawn = sampler.draw(7, step).long() - 5
        counts.index_put_((edge_users, drawn), torch.ones_like(drawn), accumulate=True)
    for user, items in histories.items():
        free = [item for item in range(m) if item not in items]
        assert counts[user, items].sum() == 0
        observed = counts[user, free].double()
        expected = 4000 * len(items) / len(free)
        statistic = float(((observed - expected) ** 2).sum() / expected)
        low, high = chi2.ppf([1e-5, 1 - 1e-5], len(free) - 1)
        assert low < statistic < high, f"user {user}: {observed.tolist()}"


def test_two_edges_of_one_step_are_independent():
    # Two users with the same four free items: all sixteen combinations are equally likely.
    sampler = sampler_of([0, 1], [4, 4], 2, 5)
    counts = torch.zeros(16)
    for step in range(1, 8001):
        first, second = (sampler.draw(3, step) - 2).tolist()
        counts[first * 4 + second] += 1
    assert float(((counts - 500) ** 2).sum() / 500) < chi2.ppf(1 - 1e-5, 15)


def test_a_subset_of_edges_draws_what_all_edges_draw():
    sampler = random_sampler()
    everything = sampler.draw(5, 17)
    chosen = torch.randperm(sampler.graph.num_edges, generator=torch.Generator().manual_seed(0))[:1000]
    assert torch.equal(sampler.draw(5, 17, chosen), everything[chosen])
    assert torch.equal(sampler.draw(5, 17, chosen[:1]), everything[chosen[:1]])


def test_drawing_again_gives_the_same_and_leaves_no_trace_on_torch():
    sampler = random_sampler()
    state = torch.get_rng_state()
    first = sampler.draw(1, 2)
    sampler.draw(9, 9)
    assert torch.equal(sampler.draw(1, 2), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.dtype == torch.int32


@pytest.mark.parametrize("other", [(0, 2), (1, 1), (2**40, 1), (0, 10**9)])
def test_another_seed_or_step_draws_others(other):
    sampler = random_sampler()
    same = (sampler.draw(0, 1) == sampler.draw(*other)).double().mean()
    assert same < 0.05  # 1/m would be chance


def test_seed_and_step_are_not_interchangeable():
    sampler = random_sampler()
    assert not torch.equal(sampler.draw(1, 2), sampler.draw(2, 1))


def test_the_thread_count_changes_nothing(threads):
    sampler = random_sampler(2000, 500, 60_000)
    threads(1)
    alone = sampler.draw(3, 4)
    threads(4)
    assert torch.equal(sampler.draw(3, 4), alone)


SIZE = 1 << 16
COUNTERS = torch.arange(SIZE)
BALANCED = 6 * 0.5 / SIZE**0.5  # six standard deviations of a mean of SIZE fair bits


def bit_means(values):
    """The mean of each of the 31 bits."""
    return torch.stack([((values >> bit) & 1).double().mean() for bit in range(31)])


def test_random_bits_lie_in_31_bits_and_each_is_balanced():
    bits = random_bits(0, 1, COUNTERS)
    assert bits.min() >= 0
    assert bits.max() < 2**31
    assert (bit_means(bits) - 0.5).abs().max() < BALANCED


@pytest.mark.parametrize(
    "other",
    [
        lambda: random_bits(0, 1, COUNTERS + 1),
        lambda: random_bits(0, 1, COUNTERS + 2**31),
        lambda: random_bits(0, 2, COUNTERS),
        lambda: random_bits(0, -1, COUNTERS),
        lambda: random_bits(1, 1, COUNTERS),
        lambda: random_bits(2**32, 1, COUNTERS),
    ],
    ids=["next counter", "far counter", "next step", "negative step", "next seed", "far seed"],
)
def test_neighbouring_counters_steps_and_seeds_share_no_bits(other):
    differing = random_bits(0, 1, COUNTERS) ^ other()
    assert (bit_means(differing) - 0.5).abs().max() < BALANCED


def test_flipping_any_bit_of_the_counter_flips_every_output_bit_half_the_time():
    base = random_bits(3, 5, COUNTERS[:4096])
    for bit in range(30):
        flipped = base ^ random_bits(3, 5, COUNTERS[:4096] ^ (1 << bit))
        assert (bit_means(flipped) - 0.5).abs().max() < 0.06, f"counter bit {bit}"


def test_random_bits_of_one_step_repeat_no_more_than_chance():
    bits = random_bits(11, 1, COUNTERS)
    collisions = SIZE - len(bits.unique())
    assert collisions <= 10  # 2^32 / 2 / 2^31 = 1 is expected
