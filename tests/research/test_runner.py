import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rankformer.research.cache import ResultCache
from rankformer.research.cells import Cell, load_parts, training_cell
from rankformer.research.compute import Conditions, StaleError, compute
from rankformer.research.runner import known_results, run_cells

from .conftest import tiny_settings, write_parts
from .kill_worker import LAST_EPOCH, long_cell

WORKER = Path(__file__).with_name("kill_worker.py")
MF = tiny_settings("tiny", "mf").settings


@pytest.fixture
def cache(tmp_path):
    return ResultCache(tmp_path / "cells")


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.steps = []

    def __call__(self, step):
        self.steps.append(step)

    def texts(self, what):
        return [step.text for step in self.steps if step.what == what]


def run(cells, cache, **conditions):
    told = Listener()
    return run_cells(cells, cache, Conditions(**conditions), told), told


def without_seconds(results):
    kept = ("metrics", "per_user", "failed")
    return {key: {name: result[name] for name in kept} for key, result in results.items()}


def test_a_second_call_computes_nothing(card, cache):
    cells = [training_cell(card, "mf", MF, seed) for seed in (0, 1)]
    first, told = run(cells, cache)
    assert told.texts("done") == ["mf on tiny, seed 0", "mf on tiny, seed 1"]
    assert (told.steps[-1].done, told.steps[-1].total) == (2, 2)
    again, told = run(cells, cache)
    assert told.steps == []
    assert again == first
    assert known_results(cells, cache, told) == first


def test_only_what_changed_is_computed(card, cache):
    run([training_cell(card, "mf", MF, 0)], cache)
    changed = {**MF, "learning_rate": 0.07}
    cells = [training_cell(card, "mf", MF, 0), training_cell(card, "mf", changed, 0), training_cell(card, "mf", MF, 5)]
    results, told = run(cells, cache)
    assert told.texts("done") == ["mf on tiny, seed 0", "mf on tiny, seed 5"]
    assert len(results) == 3


def test_a_method_without_epochs_is_a_cell_like_any_other(card, cache):
    cell = training_cell(card, "ease", tiny_settings("tiny", "ease").settings, 0)
    results, told = run([cell], cache)
    assert results[cell.key]["metrics"]["ndcg@20"] > 0
    assert told.texts("done") == ["ease on tiny, seed 0"]


def test_a_cell_that_is_asked_for_twice_is_computed_once(card, cache):
    _, told = run([training_cell(card, "mf", MF, 0)] * 3, cache)
    assert len(told.texts("done")) == 1


def test_a_damaged_result_is_told_of_and_computed_again(card, cache):
    cell = training_cell(card, "mf", MF, 0)
    first, _ = run([cell], cache)
    path = cache.path_of(cell)
    path.write_bytes(path.read_bytes().replace(b"ndcg@20", b"ndcg@21", 1))
    again, told = run([cell], cache)
    assert [path.name in note for note in told.texts("note")] == [True]
    assert told.texts("done") == ["mf on tiny, seed 0"]
    assert without_seconds(again) == without_seconds(first)


def test_two_workers_give_what_one_gives(card, cache, tmp_path):
    cells = [training_cell(card, "mf", MF, seed) for seed in (0, 1)]
    alone, _ = run(cells, cache)
    together, told = run(cells, ResultCache(tmp_path / "other"), workers=2)
    assert without_seconds(together) == without_seconds(alone)
    assert sorted(told.texts("done")) == ["mf on tiny, seed 0", "mf on tiny, seed 1"]
    assert {result["conditions"]["workers"] for result in together.values()} == {2}


def test_after_a_kill_a_training_goes_on_from_its_checkpoint(folder, cache, tmp_path):
    killed = subprocess.run([sys.executable, str(WORKER), str(folder), str(cache.folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    cell = long_cell(folder)
    assert cache.load(cell).result is None
    epochs = []
    result = compute(cell, cache, Conditions(), lambda event: epochs.append(event["epoch"]))
    assert epochs[0] == LAST_EPOCH - LAST_EPOCH % 5 + 1, "it must go on from the last checkpoint"
    assert not cache.work_folder(cell).exists()
    undisturbed = compute(cell, ResultCache(tmp_path / "other"), Conditions())
    assert result["metrics"] == undisturbed["metrics"]
    assert [event["ndcg@20"] for event in result["validations"]] == [
        event["ndcg@20"] for event in undisturbed["validations"]
    ]


def test_data_that_changed_meanwhile_is_refused(tmp_path, cache):
    folder = write_parts(tmp_path / "data")
    cell = long_cell(folder)
    write_parts(folder, seed=1)
    load_parts.cache_clear()
    with pytest.raises(StaleError, match="changed since"):
        compute(cell, cache, Conditions())
    load_parts.cache_clear()


def test_code_that_changed_meanwhile_is_refused(card, cache):
    cell = training_cell(card, "mf", MF, 0)
    older = Cell(cell.kind, cell.settings, cell.seed, "0" * 16, cell.model, cell.data, cell.label)
    with pytest.raises(StaleError, match="run the command again"):
        run([older], cache)


def test_a_cell_that_cannot_be_computed_does_not_stop_the_others(card, cache):
    empty = replace(card, source=card.source.model_copy(update={"source": "no such folder"}), fingerprint="none")
    good = training_cell(card, "mf", MF, 0)
    results, told = run([training_cell(empty, "mf", MF, 0), good], cache)
    assert list(results) == [good.key]
    assert "could not be computed: 'no such folder' is no dataset" in told.texts("note")[0]
