import json

import pytest

from rankformer.research.cache import ResultCache
from rankformer.research.cells import lemma_cell


@pytest.fixture
def cache(tmp_path):
    return ResultCache(tmp_path / "cells")


CELL = lemma_cell({"taus": (0.1, 0.2)}, 0)


def test_what_was_stored_comes_back(cache):
    assert cache.load(CELL) == (None, None)
    cache.store(CELL, {"value": 0.25, "none": None})
    assert cache.load(CELL).result == {"value": 0.25, "none": None}
    assert [path.name for path in cache.folder.iterdir()] == [f"{CELL.key}.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"0.25", b"0.26"),
        lambda data: b"",
        lambda data: b"[" * 100_000,
        lambda data: b"\x80\x04N.",
    ],
    ids=["cut", "changed", "empty", "deep", "pickle"],
)
def test_a_damaged_file_is_no_result_and_says_so(cache, damage):
    cache.store(CELL, {"value": 0.25})
    path = cache.path_of(CELL)
    path.write_bytes(damage(path.read_bytes()))
    found = cache.load(CELL)
    assert found.result is None
    assert path.name in found.problem
    assert "computed again" in found.problem


def test_a_file_under_another_cells_name_is_no_result(cache):
    other = lemma_cell({"taus": (0.1, 0.2)}, 1)
    cache.store(other, {"value": 1})
    cache.path_of(other).rename(cache.path_of(CELL))
    assert "another cell" in cache.load(CELL).problem


def test_storing_drops_the_unfinished_work_and_the_lock(cache):
    with cache.locked(CELL):
        work = cache.work_folder(CELL)
        (work / "checkpoint").mkdir(parents=True)
        cache.store(CELL, {})
        assert not work.exists()
    assert list(cache.folder.glob("unfinished/*")) == []


def test_work_without_a_result_is_left_for_the_next_time(cache):
    with cache.locked(CELL):
        cache.work_folder(CELL).mkdir(parents=True)
    assert cache.work_folder(CELL).is_dir()


def test_a_result_is_plain_json_with_its_identity(cache):
    cache.store(CELL, {"value": 1})
    content = json.loads(cache.path_of(CELL).read_text())
    assert content["identity"]["seed"] == 0
    assert content["identity"]["code"] == CELL.code
