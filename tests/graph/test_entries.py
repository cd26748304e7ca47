"""Entries of a square matrix: merging, both orders, and the sparse products against dense ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankformer.graph.entries import Entries, SparseMatrix, entry_dot, entry_sum, entry_sum_back


@st.composite
def entry_lists(draw):
    """A number of nodes and a list of entries with duplicates, rows without an entry, or no entry at all."""
    size = draw(st.integers(1, 7))
    node = st.integers(0, size - 1)
    drawn = draw(st.lists(st.tuples(node, node), max_size=25))
    rows, columns = torch.tensor(drawn, dtype=torch.int64).reshape(-1, 2).T
    return size, rows, columns


def dense(entries, values):
    result = torch.zeros(entries.num_nodes, entries.num_nodes, dtype=values.dtype)
    result[entries.rows.long(), entries.columns.long()] = values
    return result


@settings(max_examples=40, deadline=None)
@given(entry_lists(), st.integers(0, 100))
def test_merging_and_all_products_agree_with_dense_matrices(drawn, seed):
    size, rows, columns = drawn
    entries, counts = Entries.merged(rows, columns, size)
    full = torch.zeros(size, size, dtype=torch.float64).index_put_(
        (rows, columns), torch.ones(len(rows), dtype=torch.float64), accumulate=True
    )
    assert torch.equal(dense(entries, counts), full)
    assert len(entries) == int((full > 0).sum())
    generator = torch.Generator().manual_seed(seed)
    left, right = torch.randn(2, size, 3, dtype=torch.float64, generator=generator)
    values = torch.randn(len(entries), dtype=torch.float64, generator=generator)
    matrix = dense(entries, values)
    torch.testing.assert_close(
        dense(entries, entry_dot(entries, left, right)), torch.where(full > 0, left @ right.T, 0.0)
    )
    torch.testing.assert_close(entry_sum(entries, values, left), matrix @ left)
    torch.testing.assert_close(entry_sum_back(entries, values, left), matrix.T @ left)


def test_the_order_of_the_list_does_not_matter():
    rows, columns = torch.randint(0, 9, (2, 60), generator=torch.Generator().manual_seed(0))
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    one, other = (Entries.merged(rows[o], columns[o], 9)[0] for o in (torch.arange(60), shuffled))
    assert torch.equal(one.ptr, other.ptr)
    assert torch.equal(one.columns, other.columns)
    assert torch.equal(one.order, other.order)


def test_a_second_dot_forgets_the_first():
    entries, _ = Entries.merged(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), 2)
    rows = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    first = entry_dot(entries, rows, rows)
    entry_dot(entries, rows * 7, rows)
    assert torch.equal(entry_dot(entries, rows, rows), first)


def test_the_gradient_of_a_product_is_the_transposed_one():
    entries, _ = Entries.merged(torch.tensor([0, 0, 1, 3]), torch.tensor([1, 2, 1, 0]), 4)
    matrix = SparseMatrix(entries, torch.tensor([0.5, -2.0, 3.0, 1.0], dtype=torch.float64))
    rows = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: matrix @ x, rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_type_of_the_rows(dtype):
    entries, _ = Entries.merged(torch.tensor([0]), torch.tensor([1]), 2)
    rows = torch.ones(2, 2, dtype=dtype)
    assert entry_dot(entries, rows, rows).dtype == dtype
    assert (SparseMatrix(entries, torch.ones(1, dtype=dtype)) @ rows).dtype == dtype
