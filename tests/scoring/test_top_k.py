"""Exact selection: the blocked, grouped search against one stable sort."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import ranks

from rankformer.errors import ConfigError, DataError
from rankformer.scoring.base import ScoreMatrix
from rankformer.scoring.embeddings import Embeddings
from rankformer.scoring.seen_items import SeenItems
from rankformer.scoring.top_k import TopK, merge_top_k, top_k, top_k_reference


class TableScorer(ScoreMatrix):
    """A scorer that reads a matrix and notes the shape of every block it was asked for."""

    def __init__(self, table):
        self.table = table
        self.asked = []

    @property
    def num_items(self):
        return self.table.shape[1]

    def scores(self, users, out=None):
        self.asked.append(len(users))
        return self.table[users].clone()


def everyone(table):
    return torch.arange(table.shape[0])


def assert_same(found, expected):
    assert torch.equal(found.items, expected.items)
    assert torch.equal(found.scores, expected.scores)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_users, num_items = draw(st.integers(1, 7)), draw(st.integers(1, 400))
    levels = draw(st.sampled_from([1, 2, 5, 40, 10**6]))  # few levels: many ties
    table = torch.from_numpy(rng.integers(0, levels, (num_users, num_items))).to(
        draw(st.sampled_from([torch.float32, torch.float64, torch.int64]))
    )
    k = draw(st.one_of(st.integers(1, 6), st.sampled_from([20, num_items, num_items + 3])))
    density = draw(st.sampled_from([0.0, 0.1, 0.9, 1.0]))
    users, items = np.nonzero(rng.random((num_users, num_items)) < density)
    options = {"seen": draw(st.sampled_from([None, SeenItems.from_pairs(users, items, num_users, num_items)]))}
    for name in ("allow", "block"):
        if draw(st.booleans()):
            options[name] = torch.from_numpy(rng.integers(0, num_items, draw(st.integers(0, num_items))))
    max_block_bytes = draw(st.sampled_from([1, 8 * num_items * 3, 2**24]))
    return table, k, options, max_block_bytes


@settings(max_examples=300, deadline=None)
@given(problems())
def test_ties_masks_and_odd_sizes_give_exactly_the_stable_sort(problem):
    table, k, options, max_block_bytes = problem
    users = everyone(table)
    found = top_k(TableScorer(table), users, k, max_block_bytes=max_block_bytes, **options)
    expected = top_k_reference(TableScorer(table), users, k, **options)
    assert found.items.shape == (len(users), k)
    assert_same(found, expected)


def test_reference_itself_on_a_worked_row():
    # Scores 1 3 3 2 3: with item 2 blocked, best first and ties by index: 1, 4 (score 3), 3 (score 2), 0, then nothing.
    table = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    lists = top_k_reference(TableScorer(table), everyone(table), 5, block=torch.tensor([2]))
    assert lists.items.tolist() == [[1, 4, 3, 0, -1]]
    assert lists.scores.tolist() == [[3.0, 3.0, 2.0, 1.0, float("-inf")]]


@pytest.mark.parametrize("num_items", [672, 1000, 1344, 1351, 2047])
@pytest.mark.parametrize("levels", [2, 30, 10**9])
def test_grouped_search_at_k_20_with_a_tail_of_ungrouped_columns(num_items, levels):
    rng = np.random.default_rng(num_items)
    table = torch.from_numpy(rng.integers(0, levels, (9, num_items)).astype(np.float64))
    table[:, -1] = levels  # the very last column must be found too
    found = top_k(TableScorer(table), everyone(table), 20)
    assert_same(found, top_k_reference(TableScorer(table), everyone(table), 20))
    assert (found.items[:, 0] == num_items - 1).all()


@pytest.mark.parametrize("num_items", [600, 601, 607])
def test_the_one_best_item_is_found_in_every_column(num_items):
    table = torch.eye(num_items)
    assert top_k(TableScorer(table), everyone(table), 1).items[:, 0].tolist() == list(range(num_items))


def test_all_equal_scores_return_the_first_items_in_order():
    table = torch.zeros(3, 5000)
    assert top_k(TableScorer(table), everyone(table), 4).items.tolist() == [[0, 1, 2, 3]] * 3


def test_negative_scores_lose_to_no_masked_item():
    table = -torch.arange(1.0, 2001.0).repeat(2, 1)
    seen = SeenItems.from_pairs(np.array([0, 0, 1]), np.array([0, 2, 1]), 2, 2000)
    assert top_k(TableScorer(table), everyone(table), 3, seen=seen).items.tolist() == [[1, 3, 4], [0, 2, 3]]


def test_embeddings_reused_buffer_leaks_no_mask_between_blocks():
    generator = torch.Generator().manual_seed(3)
    embeddings = Embeddings(torch.randn(50, 8, generator=generator), torch.randn(900, 8, generator=generator))
    rng = np.random.default_rng(3)
    seen = SeenItems.from_pairs(rng.integers(0, 50, 5000), rng.integers(0, 900, 5000), 50, 900)
    users = torch.randperm(50, generator=generator)
    # Small integers make every product exact, so block shapes cannot change a score.
    exact = Embeddings((embeddings.users * 4).round(), (embeddings.items * 4).round())
    found = top_k(exact, users, 10, seen=seen, max_block_bytes=900 * 4 * 7)
    assert_same(found, top_k_reference(exact, users, 10, seen=seen))


def test_embeddings_that_ask_for_gradients_are_ranked_without_building_a_graph():
    embeddings = Embeddings(torch.ones(2, 3, requires_grad=True), torch.eye(4, 3, requires_grad=True))
    lists = top_k(embeddings, torch.arange(2), 2)
    assert lists.items.tolist() == [[0, 1], [0, 1]]
    assert not lists.scores.requires_grad


def test_no_block_is_larger_than_the_bound_so_the_full_matrix_never_exists():
    table = torch.rand(300, 100, dtype=torch.float64)
    scorer = TableScorer(table)
    top_k(scorer, everyone(table), 5, max_block_bytes=100 * 8 * 32)
    assert sum(scorer.asked) == 300
    assert max(scorer.asked) == 32


def test_no_tensor_of_n_times_m_elements_is_allocated_for_embeddings():
    n, m = 3000, 4000
    embeddings = Embeddings(torch.rand(n, 4), torch.rand(m, 4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        top_k(embeddings, torch.arange(n), 10, max_block_bytes=2**20)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < largest < 2 * 2**20  # the full matrix would be 48 MB


@pytest.mark.parametrize("num_items", [10, 1000, 1007])
def test_a_single_nan_anywhere_is_an_error_not_a_recommendation(num_items):
    for column in (0, num_items // 2, num_items - 1):
        table = torch.rand(4, num_items)
        table[2, column] = float("nan")
        with pytest.raises(DataError, match="NaN"):
            top_k(TableScorer(table), everyone(table), 3)


def test_infinite_scores_are_ranked_not_refused():
    table = torch.zeros(1, 1000)
    table[0, 7], table[0, 9] = float("inf"), float("-inf")
    lists = top_k(TableScorer(table), everyone(table), 3)
    assert lists.items.tolist() == [[7, 0, 1]]


def test_repeated_calls_are_equal_to_the_bit():
    embeddings = Embeddings(torch.rand(40, 16), torch.rand(3000, 16))
    users = torch.arange(40)
    assert_same(top_k(embeddings, users, 20), top_k(embeddings, users, 20))


def test_no_users_and_no_items_give_empty_lists_of_the_right_shape():
    assert top_k(TableScorer(torch.rand(3, 9)), torch.arange(0), 4).items.shape == (0, 4)
    assert top_k(Embeddings(torch.rand(3, 2), torch.rand(9, 2)), torch.arange(0), 4).items.shape == (0, 4)
    assert top_k(TableScorer(torch.rand(3, 0)), torch.arange(3), 2).items.tolist() == [[-1, -1]] * 3


def test_wrong_arguments_are_refused_with_a_reason():
    scorer = TableScorer(torch.rand(3, 9))
    users = torch.arange(3)
    with pytest.raises(ConfigError, match="k=0"):
        top_k(scorer, users, 0)
    with pytest.raises(DataError, match="start at 0; found -1"):
        top_k(scorer, torch.tensor([0, -1]), 2)
    with pytest.raises(DataError, match="flat list"):
        top_k(scorer, users[None], 2)
    with pytest.raises(DataError, match=r"0\.\.8"):
        top_k(scorer, users, 2, allow=torch.tensor([9]))
    with pytest.raises(DataError, match="has 8 items"):
        top_k(scorer, users, 2, seen=SeenItems.from_pairs(users.numpy(), users.numpy(), 3, 8))
    with pytest.raises(DataError, match="outside the 2 users"):
        top_k(scorer, users, 2, seen=SeenItems.from_pairs(np.array([0]), np.array([0]), 2, 9))


@pytest.mark.parametrize("k", [1, 4, 30])
def test_the_best_of_the_best_of_each_set_of_items_are_the_best_of_all(k):
    """Two stages: items in three sets, of which one has fewer than k; equal scores across sets go by index."""
    generator = torch.Generator().manual_seed(k)
    users, items = (torch.randint(-2, 3, (count, 3), generator=generator).float() for count in (20, 50))
    bounds = [(0, 20), (20, 47), (47, 50)]
    rows = torch.arange(20)
    found = []
    for first, last in bounds:
        part = top_k(Embeddings(users, items[first:last]), rows, k)
        found.append(TopK(torch.where(part.items >= 0, part.items + first, -1), part.scores))
    merged, wanted = merge_top_k(found, k), top_k_reference(Embeddings(users, items), rows, k)
    assert torch.equal(merged.items, wanted.items)
    assert torch.equal(merged.scores, wanted.scores)


def test_items_in_slices_on_ranks_give_the_lists_of_one_process():
    code = (
        "import torch\n"
        "from rankformer.graph.collectives import joined_ranks\n"
        "from rankformer.scoring.embeddings import Embeddings\n"
        "from rankformer.scoring.top_k import top_k_on_ranks, top_k_reference\n"
        "draws = torch.Generator().manual_seed(0)\n"
        "users, items = (torch.randint(-2, 3, (count, 3), generator=draws).float() for count in (20, 50))\n"
        "rows = torch.tensor([3, 3, 19, 0])\n"
        "with joined_ranks(30) as ranks:\n"
        "    found = top_k_on_ranks(Embeddings(users, items[ranks.slice_of(50)]), rows, 20, ranks)\n"
        "    wanted = top_k_reference(Embeddings(users, items), rows, 20)\n"
        "    print(torch.equal(found.items, wanted.items), torch.equal(found.scores, wanted.scores))\n"
    )
    ended = ranks.finish(ranks.start(3, "-c", code))
    assert [out for _, out, _ in ended] == ["True True\n"] * 3, ended[0][2]
