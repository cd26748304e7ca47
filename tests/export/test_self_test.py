"""The self-test: what it lets through and what it must not."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rankformer.errors import RankformerError, UserError
from rankformer.export.contents import Contents, Tables, VectorTable, read_contents
from rankformer.export.self_test import count_ties, self_test
from rankformer.export.targets import NumpyArrays, ParquetFiles, write_parquet
from rankformer.scoring.embeddings import Embeddings

from .conftest import ITEMS, odd_items


def test_what_was_compared(saved, tmp_path):
    contents = read_contents(saved())
    NumpyArrays().write(contents, tmp_path)
    outcome = self_test(contents, NumpyArrays(), tmp_path)
    assert (outcome.users, outcome.k, outcome.searches, outcome.ties) == (100, 20, ["numpy product"], 0)


def test_fewer_users_and_items_than_asked_for(saved, tmp_path):
    contents = read_contents(saved(user_ids=pa.array([5, 6, 7]), item_ids=pa.array([1, 2])))
    NumpyArrays().write(contents, tmp_path)
    outcome = self_test(contents, NumpyArrays(), tmp_path)
    assert (outcome.users, outcome.k) == (3, 2)


def swapped(rows):
    return rows[[1, 0, *range(2, len(rows))]]


def swap_vectors(contents, folder):
    np.save(folder / "items.npy", swapped(contents.tables.items.vectors))


def round_vectors(contents, folder):
    np.save(folder / "users.npy", contents.tables.users.vectors.astype(np.float16).astype(np.float32))


def lose_a_row(contents, folder):
    np.save(folder / "items.npy", contents.tables.items.vectors[:-1])


def swap_ids(contents, folder):
    items = contents.tables.items
    order = pa.array([1, 0, *range(2, ITEMS)])
    write_parquet(folder / "item_ids.parquet", {"id": items.ids.take(order), "title": items.titles}, contents)


def lose_titles(contents, folder):
    write_parquet(folder / "item_ids.parquet", {"id": contents.tables.items.ids}, contents)


def change_a_title(contents, folder):
    items = contents.tables.items
    write_parquet(folder / "item_ids.parquet", {"id": items.ids, "title": items.titles.fill_null("")}, contents)


def change_the_ids_type(contents, folder):
    write_parquet(folder / "user_ids.parquet", {"id": pa.array(["x"] * 130)}, contents)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (swap_vectors, "item vectors"),
        (round_vectors, "user vectors"),
        (lose_a_row, "item vectors"),
        (swap_ids, "item ids"),
        (lose_titles, "item titles"),
        (change_a_title, "item titles"),
        (change_the_ids_type, "cannot be read back"),
    ],
)
def test_files_that_hold_something_else(saved, tmp_path, damage, message):
    ids, titles = odd_items()
    contents = read_contents(saved(item_ids=ids, titles=titles))
    NumpyArrays().write(contents, tmp_path)
    damage(contents, tmp_path)
    with pytest.raises(RankformerError, match=f"failed its self-test: .*{message}") as problem:
        self_test(contents, NumpyArrays(), tmp_path)
    assert not isinstance(problem.value, UserError)


def test_vectors_that_are_not_the_runs(saved, tmp_path):
    contents = read_contents(saved())
    users, items = contents.tables
    other = Contents(Tables(VectorTable(users.ids, -users.vectors), items), contents.embeddings, contents.metadata)
    ParquetFiles().write(other, tmp_path)
    with pytest.raises(RankformerError, match="ranks otherwise than the run for 100 of 100 users"):
        self_test(other, ParquetFiles(), tmp_path)


# One user along the first axis; scores are the first column, lengths mostly the second.
EMBEDDINGS = Embeddings(
    torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0], [2.0, 0.0], [2.0 + 1e-6, 0.0], [1.0, 0.0], [2.01, 0.0]])
)


def ties(found):
    return count_ties(EMBEDDINGS, np.array([0]), np.array([[0, 2, 1]]), np.array([found]), "a search")


def test_equal_scores_may_change_ranks():
    assert ties([0, 2, 1]) == 0
    assert ties([0, 1, 2]) == 2


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([0, 2, 3], "ranks otherwise than the run for 1 of 1 users"),
        ([0, 4, 2], "ranks otherwise"),
        ([2, 0, 1], "ranks otherwise"),
        ([0, 2, 2], "fewer than 3 different"),
        ([0, 2, -1], "fewer than 3 different"),
        ([0, 2], "fewer than 3 different"),
    ],
)
def test_other_differences_are_refused(found, message):
    with pytest.raises(RankformerError, match=message):
        ties(found)
